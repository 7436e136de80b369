// SPDX-License-Identifier: Apache-2.0
// Why a file of cudaguard cannot be used. Pure; thread-safe, async-signal-safe, allocation-free.
#pragma once

#include <cstddef>
#include <cstdint>

namespace [[gnu::visibility("hidden")]] cudaguard {

enum class Unusable : uint8_t {
  kNo,  ///< it can be used
  kMissing,
  kUnreadable,
  kCutShort,
  kNoLibrary,
  kOtherMachine,
  kOtherVersion,
  kOtherBuild,
  kNotLoaded,  ///< ld.so did not load a good library
  /// A shortage that may be over at the next dlopen, which tries again.
  kPassing,
  /// The directory that the guard was loaded from is not there for this process.
  kUnreachable,
  /// The program requests a driver by a path of its own.
  kNotOurs,
};

struct UnusableRow {
  char text[59];  ///< a clause
  Unusable why;
  bool reinstall;  ///< a new installation is the remedy
};
inline constexpr UnusableRow kUnusableRows[] = {
    {"", Unusable::kNo, false},
    {"is missing", Unusable::kMissing, true},
    {"cannot be read", Unusable::kUnreadable, true},
    {"is cut short", Unusable::kCutShort, true},
    {"is not a library", Unusable::kNoLibrary, true},
    {"is for another machine", Unusable::kOtherMachine, true},
    {"is of another version", Unusable::kOtherVersion, true},
    {"is of another build", Unusable::kOtherBuild, true},
    {"cannot be loaded", Unusable::kNotLoaded, true},
    {"cannot be opened now", Unusable::kPassing, false},
    {"cannot be reached by this process (chroot or permissions)", Unusable::kUnreachable, false},
    {"cannot be used by cudaguard's proxy library", Unusable::kNotOurs, false},
};
constexpr const UnusableRow& row_of(Unusable why) {
  return kUnusableRows[static_cast<size_t>(why)];
}

}  // namespace cudaguard

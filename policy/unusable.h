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
  Unusable why;
  const char* text;  ///< a clause
  bool reinstall;    ///< a new installation is the remedy
};
inline constexpr UnusableRow kUnusableRows[] = {
    {Unusable::kNo, "", false},
    {Unusable::kMissing, "is missing", true},
    {Unusable::kUnreadable, "cannot be read", true},
    {Unusable::kCutShort, "is cut short", true},
    {Unusable::kNoLibrary, "is not a library", true},
    {Unusable::kOtherMachine, "is for another machine", true},
    {Unusable::kOtherVersion, "is of another version", true},
    {Unusable::kOtherBuild, "is of another build", true},
    {Unusable::kNotLoaded, "cannot be loaded", true},
    {Unusable::kPassing, "cannot be opened now", false},
    {Unusable::kUnreachable, "cannot be reached by this process (chroot or permissions)", false},
    {Unusable::kNotOurs, "cannot be used by cudaguard's proxy library", false},
};
constexpr const UnusableRow& row_of(Unusable why) {
  return kUnusableRows[static_cast<size_t>(why)];
}

}  // namespace cudaguard

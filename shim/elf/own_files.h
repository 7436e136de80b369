// SPDX-License-Identifier: Apache-2.0
// The files that are installed with the guard, in the directory `cudaguard` beside it: where they
// are, and why one cannot be used. Thread-safe; allocates nothing.
#pragma once

#include <cstddef>
#include <string_view>

namespace [[gnu::visibility("hidden")]] cudaguard {

/// Why a file cannot be used: clauses, compared by address.
inline constexpr char kMissing[] = "is missing";
inline constexpr char kCutShort[] = "is cut short";
/// A shortage that may be over at the next dlopen: try again then.
inline constexpr char kPassing[] = "cannot be opened now";
/// Of a driver that the program asks for by a path of its own.
inline constexpr char kNotOurs[] = "cannot be used by cudaguard's proxy library";

/// Room for every path that ld.so takes. Too much for a stack.
using PathRoom = char[4096];

/// A path in that directory, in room of the caller's.
class OwnPath {
 public:
  OwnPath(char* room, size_t size) : text_(room), size_(size) {}

  /// `beside`: the guard's own path, or null. False: it is not known, or too long.
  bool set_directory(const char* beside);
  /// Beside the file that the guard is mapped from, links resolved: where the guard's own path is
  /// relative or a link to another place. False: nobody can tell.
  bool set_real_directory();
  /// An empty path, which does not exist, if there is no directory or it is too long.
  const char* file(std::string_view name);

 private:
  bool set_directory_of(std::string_view path);

  char* text_;
  size_t size_;
  size_t directory_ = 0;
};

/// The guard's own path as ld.so has it, if it is absolute; else null.
const char* own_path();

/// An ELF library for this machine with all its bytes? Returns null, or why not.
const char* why_unusable(const char* path);

/// Of a good library that ld.so did not load: would ld.so have found room (RLIMIT_AS)?
const char* why_not_loaded();

}  // namespace cudaguard

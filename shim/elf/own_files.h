// SPDX-License-Identifier: Apache-2.0
// The files that are installed with the guard, in the directory `cudaguard` next to it: their
// paths, and why one cannot be used. Thread-safe; allocates nothing.
#pragma once

#include <cstddef>
#include <string_view>

#include "policy/unusable.h"
#include "shim/elf/objects.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// Room for every path that ld.so takes; too large for a stack.
using PathRoom = char[4096];

/// A path in that directory, in the caller's buffer.
class OwnPath {
 public:
  OwnPath(char* room, size_t size) : text_(room), size_(size) {}

  /// `beside` is the guard's own path, or null. Returns false if the path is null or too long.
  bool set_directory(const char* beside);
  /// Uses the directory of the file that the guard is mapped from, with links resolved. This is
  /// needed if the guard's own path is relative or a link to another directory. Returns false if
  /// the directory cannot be found.
  bool set_real_directory();
  /// Returns the path of the file `name`. If there is no directory or the path is too long, returns
  /// an empty path, which does not exist.
  const char* file(std::string_view name);

 private:
  bool set_directory_of(std::string_view path);

  char* text_;
  size_t size_;
  size_t directory_ = 0;
};

/// Returns the guard's own path as ld.so knows it if the path is absolute, otherwise null.
const char* own_path(const StartObjects& start);

/// True if the file that the guard was loaded from is where it was.
bool is_own_file_there(const StartObjects& start);

/// Returns kNo if the file is a complete ELF library for this machine.
Unusable why_unusable(const char* path);

/// Returns why ld.so did not load a good library: kPassing if there is no room (RLIMIT_AS).
Unusable why_not_loaded();

}  // namespace cudaguard

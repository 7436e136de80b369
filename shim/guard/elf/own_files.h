// SPDX-License-Identifier: Apache-2.0
// The files that are installed with the guard, in the directory `cudaguard` next to it: their
// paths, and why one cannot be used. Thread-safe; allocates nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <string_view>

#include "policy/library.h"
#include "policy/unusable.h"
#include "shim/guard/elf/objects.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// Returns an exported function of a loaded library. Null if there is none of that name, or no
/// library.
const void* symbol_of(const void* link_map, const char* name);

/// One of the libraries among these files, as ld.so has loaded it.
struct OwnLibrary {
  const char* path = nullptr;  ///< as ld.so knows it; null if it is not loaded
  const void* link_map = nullptr;

  const void* symbol(const char* name) const { return symbol_of(link_map, name); }
};

/// The same for several threads.
struct SharedOwnLibrary {
  std::atomic<const char*> path{nullptr};  ///< published last
  std::atomic<const void*> link_map{nullptr};
  std::atomic<Unusable> why{Unusable::kNo};

  void publish(const struct link_map& map) {
    link_map.store(&map, std::memory_order_relaxed);
    path.store(map.l_name, std::memory_order_release);
  }
  bool is_loaded() const { return path.load(std::memory_order_acquire) != nullptr; }
  OwnLibrary get() const {
    return {path.load(std::memory_order_acquire), link_map.load(std::memory_order_relaxed)};
  }
};

/// The place of Library::kDriver or Library::kNvml in arrays of two.
constexpr int index_of(Library library) { return library == Library::kNvml ? 1 : 0; }

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

// SPDX-License-Identifier: Apache-2.0
// The dynamic loader's functions, found without one versioned reference to any of them: linked on a
// new glibc such a reference kills every program on glibc < 2.30. Found once;
// lock-free; takes the loader's lock (dl_iterate_phdr) on the first call only.
#pragma once

#include <atomic>

namespace [[gnu::visibility("hidden")]] cudaguard {

struct Loader {
  using Open = void* (*)(const char*, int);
  using OpenIn = void* (*)(long, const char*, int);

  /// The definitions behind ours in the search order: another interposer's or libc's. May be null
  /// (glibc < 2.34, a weak caller, libdl.so.2 not loaded).
  Open next_dlopen = nullptr;
  OpenIn next_dlmopen = nullptr;
  /// libc's own.
  Open dlopen = nullptr;
  OpenIn dlmopen = nullptr;
  int (*dlclose)(void*) = nullptr;
  char* (*dlerror)() = nullptr;
  void* (*dlsym)(void*, const char*) = nullptr;
  int (*dlinfo)(void*, int, void*) = nullptr;
};

namespace detail {
extern constinit Loader found_loader;                // NOLINT(bugprone-dynamic-static-initializers)
extern constinit std::atomic<bool> loader_is_whole;  // NOLINT(bugprone-dynamic-static-initializers)
const Loader& find_loader();
}  // namespace detail

inline const Loader& loader() {
  if (detail::loader_is_whole.load(std::memory_order_acquire)) [[likely]] {
    return detail::found_loader;
  }
  return detail::find_loader();
}

}  // namespace cudaguard

// SPDX-License-Identifier: Apache-2.0
// Finds the dynamic loader's functions without a versioned reference to any of them. If the guard
// is linked on a new glibc, such a reference kills every program on glibc < 2.30. Thread-safe.
#pragma once

#include <dlfcn.h>

#include <atomic>

#include "shim/guard/elf/objects.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// One such function. Threads that race through the first call write the same address.
class AnyFound {
 public:
  /// Null changes nothing: a thread that found less does not undo what another thread has found.
  void take(const void* found) {
    if (found != nullptr) at_.store(const_cast<void*>(found), std::memory_order_relaxed);
  }
  const void* address() const { return at_.load(std::memory_order_relaxed); }

 protected:
  std::atomic<void*> at_{nullptr};
};

template <typename Function>
class Found : public AnyFound {
 public:
  Function get() const { return reinterpret_cast<Function>(at_.load(std::memory_order_relaxed)); }
  operator Function() const { return get(); }  // NOLINT(google-explicit-constructor): called
};

struct Loader {
  using Open = void* (*)(const char*, int);
  using OpenIn = void* (*)(long, const char*, int);

  /// The definitions after ours in the search order: another interposer's or libc's. May be null
  /// (glibc < 2.34, a weak caller, libdl.so.2 not loaded).
  Found<Open> next_dlopen;
  Found<OpenIn> next_dlmopen;
  Found<int (*)(void*)> next_dlclose;
  Found<void* (*)(void*, const char*, const char*)> next_dlvsym;
  /// libc's own.
  Found<Open> dlopen;
  Found<OpenIn> dlmopen;
  Found<int (*)(void*)> dlclose;
  Found<void* (*)(void*, const char*, const char*)> dlvsym;
  Found<char* (*)()> dlerror;
  Found<void* (*)(void*, const char*)> dlsym;
  Found<int (*)(const void*, Dl_info*, void**, int)> dladdr1;
  /// __libc_single_threaded of glibc >= 2.32: not zero if the process has only ever had one thread,
  /// and the process that forked it, too.
  Found<const char*> single_threaded;

  std::atomic<bool> whole{false};  ///< all functions are found
};

/// Finds the functions that are loaded so far. With glibc < 2.34 some are missing until libdl.so.2
/// is loaded. Takes the lock of dlopen.
void find(Loader& loader, const StartObjects& start);

/// Returns ld.so's handle for the object that holds the address, or null. Takes the lock of dlopen.
inline link_map* object_of(const Loader& loader, const void* address) {
  Dl_info info;
  void* object = nullptr;
  if (loader.dladdr1 == nullptr || loader.dladdr1(address, &info, &object, RTLD_DL_LINKMAP) == 0) {
    return nullptr;
  }
  return static_cast<link_map*>(object);
}

}  // namespace cudaguard

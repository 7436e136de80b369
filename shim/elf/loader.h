// SPDX-License-Identifier: Apache-2.0
// The dynamic loader's functions, found without one versioned reference to any of them: linked on a
// new glibc such a reference kills every program on glibc < 2.30. Thread-safe.
#pragma once

#include <atomic>

namespace [[gnu::visibility("hidden")]] cudaguard {

/// One of them. Threads that race through the first call write the same.
class AnyFound {
 public:
  /// Null changes nothing: a thread that saw less does not undo what another has found.
  void take(const void* found) {
    if (found != nullptr) at_.store(const_cast<void*>(found), std::memory_order_relaxed);
  }

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

  /// The definitions behind ours in the search order: another interposer's or libc's. May be null
  /// (glibc < 2.34, a weak caller, libdl.so.2 not loaded).
  Found<Open> next_dlopen;
  Found<OpenIn> next_dlmopen;
  /// libc's own.
  Found<Open> dlopen;
  Found<OpenIn> dlmopen;
  Found<int (*)(void*)> dlclose;
  Found<char* (*)()> dlerror;
  Found<void* (*)(void*, const char*)> dlsym;
  Found<int (*)(void*, int, void*)> dlinfo;

  std::atomic<bool> whole{false};  ///< nothing is left to be found
};

/// Finds what there is so far: with glibc < 2.34 not all without libdl.so.2. Takes the loader's
/// lock (dl_iterate_phdr).
void find(Loader& it);

}  // namespace cudaguard

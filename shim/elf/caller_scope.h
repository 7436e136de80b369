// SPDX-License-Identifier: Apache-2.0
// The definition that a caller would have reached if the guard did not export that name, as ld.so
// binds it: two majors of the CUDA runtime may live in one process, and TensorFlow exports `cu*`
// trampolines of its own, so "the next one" is wrong.
#pragma once

#include <atomic>
#include <cstdint>

namespace [[gnu::visibility("hidden")]] cudaguard {

/// The names by which libraries were asked for with RTLD_GLOBAL, by their hashes.
class GlobalNames {
 public:
  void add(const char* name);
  bool has(uint32_t hash) const;

 private:
  std::atomic<uint32_t> hashes_[256] = {};
};

/// Null if there is no other definition. Where the caller's scope has none, the first one that was
/// loaded: after a call in tail position the return address is that of the caller's caller.
/// Thread-safe, async-signal-safe; changes neither errno nor dlerror. dl_iterate_phdr's lock alone,
/// no dlsym or dlopen: a constructor may hold ld.so's other one and wait for the thread that calls.
const void* find_definition(const char* name, const void* caller, const GlobalNames& global);

/// The definition of `name` in the library that holds `function`, or null.
const void* definition_beside(const void* function, const char* name);

}  // namespace cudaguard

// SPDX-License-Identifier: Apache-2.0
// Finds the definition that a caller would have reached, as ld.so binds it, if the guard did not
// export the name. The next definition in the search order may be wrong. Two majors of the CUDA
// runtime may be in one process, and TensorFlow exports `cu*` trampolines of its own.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/guard/elf/objects.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// The hashes of the names by which libraries were requested with RTLD_GLOBAL.
class GlobalNames {
 public:
  void add(const char* name);
  bool has(uint32_t hash) const;

 private:
  std::atomic<uint32_t> hashes_[256] = {};
};

/// Returns null if there is no other definition. If the caller's scope has none, returns the first
/// one that was loaded, because a tail call leaves the return address of the caller's caller.
/// Thread-safe, async-signal-safe; changes neither errno nor dlerror. Calls no dlsym or dlopen,
/// because a constructor may hold their lock and wait for the calling thread. Takes no lock at all
/// for a caller that the program was started with, or in a forked child.
const void* find_definition(const char* name, const void* caller, const GlobalNames& global,
                            const StartObjects& start, LaterObjects later);

/// True if an object has DT_RPATH, where ld.so also looks for what its own libraries ask for.
bool has_rpath(const StartObjects& start, LaterObjects later);

/// Returns the definition of `name` in the library that holds `function`, or null.
const void* definition_beside(const void* function, const char* name, const StartObjects& start,
                              LaterObjects later);

}  // namespace cudaguard

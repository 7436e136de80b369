// SPDX-License-Identifier: Apache-2.0
#include "shim/state/answers.h"

#include <dlfcn.h>

namespace cudaguard {

void libraries_may_change(const char* name, int mode) {
  lasting.library_requests.fetch_add(1, std::memory_order_release);
  if ((mode & RTLD_GLOBAL) != 0 && name != nullptr) lasting.global_names.add(name);
}

const void* definition_for(const char* name, const void* caller) {
  return find_definition(name, caller, lasting.global_names);
}

void* Answers::find(const char* name, const void* caller, Search* search) {
  if (void* target = known(name, caller)) return target;
  const uint64_t requests = lasting.library_requests.load(std::memory_order_acquire);
  Answer& it = answers_[place_of(name, caller)];
  uint32_t version = it.version.load(std::memory_order_acquire);
  void* target = const_cast<void*>(search(name, caller));
  version &= ~1U;
  if (target != nullptr &&
      it.version.compare_exchange_strong(version, version + 1, std::memory_order_acquire)) {
    std::atomic_thread_fence(std::memory_order_release);
    it.caller.store(caller, std::memory_order_relaxed);
    it.name.store(name, std::memory_order_relaxed);
    it.requests.store(requests, std::memory_order_relaxed);
    it.target.store(target, std::memory_order_relaxed);
    it.version.store(version + 2, std::memory_order_release);
  }
  return target;
}

}  // namespace cudaguard

// SPDX-License-Identifier: Apache-2.0
#include "shim/state/answers.h"

namespace cudaguard {

constinit std::atomic<uint64_t> detail::library_requests{1};

void* Answers::find(const char* name, const void* caller, Search* search) {
  if (void* target = known(name, caller)) return target;
  const uint64_t requests = detail::library_requests.load(std::memory_order_acquire);
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

// SPDX-License-Identifier: Apache-2.0
#include "shim/state/answers.h"

#include <dlfcn.h>

#include "shim/state/process.h"

namespace cudaguard {

void libraries_may_change(const char* name, int mode) {
  inherited.answers_age.fetch_add(kOneAge, std::memory_order_release);
  if ((mode & RTLD_GLOBAL) != 0 && name != nullptr) inherited.global_names.add(name);
}

const void* definition_for(const char* name, const void* caller) {
  return find_definition(name, caller, inherited.global_names, start_objects(),
                         later_objects(caller));
}

void Answers::keep(const char* name, const void* caller, void* target, uint32_t age) {
  Answer& it = answers_[place_of(name, caller)];
  uint64_t stamp = it.stamp.load(std::memory_order_relaxed);
  if (stamp >= kWriting ||
      !it.stamp.compare_exchange_strong(stamp, stamp | kWriting, std::memory_order_acquire)) {
    return;  // another thread writes this answer
  }
  std::atomic_thread_fence(std::memory_order_release);
  it.caller.store(caller, std::memory_order_relaxed);
  it.name.store(name, std::memory_order_relaxed);
  it.target.store(target, std::memory_order_relaxed);
  it.stamp.store(uint64_t{age} << 32 | static_cast<uint32_t>(stamp + 1), std::memory_order_release);
}

}  // namespace cudaguard

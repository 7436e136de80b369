// SPDX-License-Identifier: Apache-2.0
#include "shim/guard/exports/next_definition.h"

#include <string_view>

#include "shim/guard/elf/caller_scope.h"
#include "shim/guard/proxy_loader/proxies.h"

namespace cudaguard {

void Answers::keep(const char* name, const void* caller, void* target, uint32_t age) {
  Answer& answer = answers_[slot_of(name, caller)];
  uint64_t stamp = answer.stamp.load(std::memory_order_relaxed);
  if (stamp >= kWriting ||
      !answer.stamp.compare_exchange_strong(stamp, stamp | kWriting, std::memory_order_acquire)) {
    return;  // another thread writes this answer
  }
  std::atomic_thread_fence(std::memory_order_release);
  answer.caller.store(caller, std::memory_order_relaxed);
  answer.name.store(name, std::memory_order_relaxed);
  answer.target.store(target, std::memory_order_relaxed);
  answer.stamp.store(uint64_t{age} << 32 | static_cast<uint32_t>(stamp + 1),
                     std::memory_order_release);
}

namespace {

const void* look_up(Process& process, const char* name, const void* caller) {
  const Policy policy = process.policy();
  if (policy == Policy::kForceCpu) return nullptr;
  if (policy == Policy::kOff || std::string_view(name).starts_with("cuda")) {
    return find_definition(name, caller, inherited.hook.global_names, start_objects(),
                           later_objects(caller));
  }
  return proxy(process, name[0] == 'n' ? Library::kNvml : Library::kDriver).symbol(name);
}

[[gnu::noinline, gnu::cold]] NextDefinition search(const char* name, const void* caller) {
  Process& process = cudaguard::process();
  const uint32_t age = inherited.hook.answers_age.load(std::memory_order_acquire);
  void* found = const_cast<void*>(look_up(process, name, caller));
  // If only_pid is set, a forked child would take these answers for its own.
  if (found != nullptr && process.only_pid == 0)
    process.exports.answers.keep(name, caller, found, age);
  return {found, &process};
}

}  // namespace

NextDefinition next_definition(const char* name, const void* caller) {
  const NextDefinition known = known_definition(name, caller);
  return known.function != nullptr ? known : search(name, caller);
}

}  // namespace cudaguard

// SPDX-License-Identifier: Apache-2.0
#include "shim/exports/next_definition.h"

#include <string_view>

#include "shim/proxy_loader/proxies.h"

namespace cudaguard {

namespace {

const void* look_up(Process& here, const char* name, const void* caller) {
  const Policy policy = here.policy();
  if (policy == Policy::kForceCpu) return nullptr;
  if (policy == Policy::kOff || std::string_view(name).starts_with("cuda")) {
    return definition_for(name, caller);
  }
  return proxy(here, name[0] == 'n' ? Library::kNvml : Library::kDriver).symbol(name);
}

[[gnu::noinline, gnu::cold]] NextDefinition search(const char* name, const void* caller) {
  Process& here = process();
  const uint32_t age = inherited.answers_age.load(std::memory_order_acquire);
  void* found = const_cast<void*>(look_up(here, name, caller));
  // If only_pid is set, a forked child would take these answers for its own.
  if (found != nullptr && here.only_pid == 0) here.answers.keep(name, caller, found, age);
  return {found, &here};
}

}  // namespace

NextDefinition next_definition(const char* name, const void* caller) {
  Process* here = inherited.process.load(std::memory_order_acquire);
  void* known;
  if (here != nullptr && here->answers.know(name, caller, known)) [[likely]] {
    return {known, here};
  }
  return search(name, caller);
}

}  // namespace cudaguard

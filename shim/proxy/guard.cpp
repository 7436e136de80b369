// SPDX-License-Identifier: Apache-2.0
// A proxy's only writable data is one struct, of which a forked child gets a copy.
#include "shim/proxy/guard.h"

#include "shim/guard/elf/base_namespace.h"

// ld.so binds this to the preloaded guard. It is null without a guard and in dlmopen's namespaces.
#pragma weak cudaguard_services_v1

namespace cudaguard {

namespace {

const Services* ask() {
  using Ask = const Services* (*)();
  if (&cudaguard_services_v1 != nullptr) return cudaguard_services_v1();
  const void* function = guards_symbol("cudaguard_services_v1");
  if (function == nullptr) return nullptr;
  return reinterpret_cast<Ask>(const_cast<void*>(function))();
}

}  // namespace

bool adopt_guard(const Services* guard) {
  if (guard == nullptr || guard->id != CUDAGUARD_INTERFACE_ID) return false;
  const Services* none = nullptr;
  proxy_state().guard.compare_exchange_strong(none, guard, std::memory_order_acq_rel);
  return true;
}

const Services* find_guard() {
  const Services* guard = proxy_state().guard.load(std::memory_order_acquire);
  if (guard != nullptr) return guard;
  adopt_guard(ask());
  return proxy_state().guard.load(std::memory_order_acquire);
}

}  // namespace cudaguard

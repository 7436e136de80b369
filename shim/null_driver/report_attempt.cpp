// SPDX-License-Identifier: Apache-2.0
#include "shim/null_driver/report_attempt.h"

#include <atomic>
#include <cstdint>

#include "shim/elf/base_namespace.h"

// ld.so binds this to the preloaded guard. It is null without a guard and in dlmopen's namespaces.
extern "C" [[gnu::weak, gnu::visibility("default")]] void cudaguard_touch_v1(
    unsigned abi, const char* api, const void* return_address);

namespace cudaguard {

namespace {

using Report = void (*)(unsigned, const char*, const void*);
constexpr unsigned kAbi = 1;
constexpr uintptr_t kNotAsked = 0;
constexpr uintptr_t kNobody = 1;
// Looked up once, because later other threads may unload libraries from ld.so's list. Threads that
// race here find the same guard. Not in .bss, which would cost a mapping.
[[gnu::section(".data")]] constinit std::atomic<uintptr_t> guard_elsewhere{kNotAsked};

uintptr_t find_elsewhere() {
  const void* found = guards_symbol("cudaguard_touch_v1");
  const uintptr_t guard = found != nullptr ? reinterpret_cast<uintptr_t>(found) : kNobody;
  guard_elsewhere.store(guard, std::memory_order_relaxed);
  return guard;
}

}  // namespace

void report_attempt(const char* api, const void* caller) {
  if (Report here = &cudaguard_touch_v1; here != nullptr) return here(kAbi, api, caller);
  uintptr_t guard = guard_elsewhere.load(std::memory_order_relaxed);
  if (guard == kNotAsked) guard = find_elsewhere();
  if (guard != kNobody) reinterpret_cast<Report>(guard)(kAbi, api, caller);
}

}  // namespace cudaguard

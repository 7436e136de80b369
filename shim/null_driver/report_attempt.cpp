// SPDX-License-Identifier: Apache-2.0
#include "shim/null_driver/report_attempt.h"

#include <atomic>
#include <cstdint>

#include "shim/guard/elf/base_namespace.h"

// ld.so binds this to the preloaded guard. It is null without a guard and in dlmopen's namespaces.
extern "C" [[gnu::weak, gnu::visibility("default")]] void cudaguard_attempt_v1(
    unsigned abi, const char* api, const void* return_address);

namespace cudaguard {

namespace {

using Report = void (*)(unsigned, const char*, const void*);
constexpr unsigned kAbi = 1;

constexpr uintptr_t kNotAsked = 0;
constexpr uintptr_t kNobody = 1;
// Not in .bss, which would cost a mapping.
[[gnu::section(".data")]] constinit std::atomic<uintptr_t> found_guard{kNotAsked};

/// Finds the guard's function for a copy of the null driver in another namespace (dlmopen), null
/// without a guard. Looks once, because later other threads may unload libraries from ld.so's list.
/// Threads that race here find the same guard. Lock-free, allocation-free.
Report guards_report() {
  uintptr_t known = found_guard.load(std::memory_order_relaxed);
  if (known == kNotAsked) {
    const void* found = guards_symbol("cudaguard_attempt_v1");
    known = found != nullptr ? reinterpret_cast<uintptr_t>(found) : kNobody;
    found_guard.store(known, std::memory_order_relaxed);
  }
  return known != kNobody ? reinterpret_cast<Report>(known) : nullptr;
}

}  // namespace

void report_attempt(const char* api, const void* caller) {
  Report report = &cudaguard_attempt_v1;
  if (report == nullptr) report = guards_report();
  if (report != nullptr) report(kAbi, api, caller);
}

}  // namespace cudaguard

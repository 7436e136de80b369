// SPDX-License-Identifier: Apache-2.0
#include "shim/standin/touch.h"

#include <atomic>
#include <cstdint>

#include "shim/elf/base_namespace.h"

// Bound by ld.so to the preloaded guard; null without one, and in a namespace of dlmopen.
extern "C" [[gnu::weak, gnu::visibility("default")]] void cudaguard_touch_v1(
    unsigned abi, const char* api, const void* return_address);

namespace cudaguard {
namespace {

using TouchFunction = void (*)(unsigned, const char*, const void*);
constexpr unsigned kAbi = 1;

TouchFunction find_guard() {
  return reinterpret_cast<TouchFunction>(const_cast<void*>(guards_symbol("cudaguard_touch_v1")));
}

constexpr uintptr_t kNotAsked = 0;
constexpr uintptr_t kNobody = 1;
// Threads that race here find the same answer.
std::atomic<uintptr_t> g_guard{kNotAsked};

}  // namespace

void touch(const char* api, const void* caller) {
  if (TouchFunction direct = &cudaguard_touch_v1; direct != nullptr) {
    direct(kAbi, api, caller);
    return;
  }
  uintptr_t guard = g_guard.load(std::memory_order_relaxed);
  if (guard == kNotAsked) {
    guard = reinterpret_cast<uintptr_t>(find_guard());
    if (guard == 0) guard = kNobody;
    g_guard.store(guard, std::memory_order_relaxed);
  }
  if (guard != kNobody) reinterpret_cast<TouchFunction>(guard)(kAbi, api, caller);
}

}  // namespace cudaguard

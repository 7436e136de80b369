// SPDX-License-Identifier: Apache-2.0
// Finds a function of the guard for a copy of the null driver in another namespace (dlmopen), where
// ld.so binds nothing to the guard. Lock-free, allocation-free.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/elf/base_namespace.h"

namespace cudaguard {

// Looks the function up once, because later other threads may unload libraries from ld.so's list.
// Threads that race here find the same guard. Must not be in .bss, which would cost a mapping.
class GuardFunction {
 public:
  /// Null without a guard.
  template <typename T>
  T find(const char* name) {
    uintptr_t known = address_.load(std::memory_order_relaxed);
    if (known == kNotAsked) {
      const void* found = guards_symbol(name);
      known = found != nullptr ? reinterpret_cast<uintptr_t>(found) : kNobody;
      address_.store(known, std::memory_order_relaxed);
    }
    return known != kNobody ? reinterpret_cast<T>(known) : nullptr;
  }

 private:
  static constexpr uintptr_t kNotAsked = 0;
  static constexpr uintptr_t kNobody = 1;
  std::atomic<uintptr_t> address_{kNotAsked};
};

}  // namespace cudaguard

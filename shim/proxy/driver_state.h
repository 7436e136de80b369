// SPDX-License-Identifier: Apache-2.0
// What the driver proxy knows: the real functions, whether calls may pass in this process, and
// the real cuInit, done once. Thread-safe; a forked child starts anew.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shim/proxy/guard.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

// As cuda.h has them. It is not included: its versions declare different sets of these functions.
using Result = int;
inline constexpr Result kSuccess = 0;
inline constexpr Result kInvalidValue = 1;
inline constexpr Result kNotInitialized = 3;
inline constexpr Result kNoDevice = 100;
inline constexpr Result kInvalidDevice = 101;
inline constexpr Result kNotFound = 500;

enum Guarded : size_t {
#define GUARDED_DRIVER(name, where) k_##name,
#include "shim/api/guarded.inc"
  kGuardedCount
};

/// Ours, and their names.
// NOLINTBEGIN(bugprone-dynamic-static-initializers): constants
extern void* const own_functions[kGuardedCount];
extern const char* const guarded_names[kGuardedCount];
// NOLINTEND(bugprone-dynamic-static-initializers)

struct Plan;

struct DriverProxyState : ProxyState {
  /// Where cuInit of this driver has succeeded: pages that are wiped in a forked child. (Another
  /// namespace has a driver of its own, behind a proxy of its own.)
  std::atomic<const Process*> process{nullptr};

  /// The real functions; null where the real driver has none of that name.
  void* real[kGuardedCount] = {};

  bool redirected = false;  ///< the driver's slot for getenv leads to us
  /// What the driver is told there, and how often it has asked.
  std::atomic<const Plan*> plan{nullptr};
  std::atomic<uint32_t> times_asked{0};
};
extern constinit DriverProxyState
    driver;  // NOLINT(bugprone-dynamic-static-initializers): constinit

template <typename Function>
[[gnu::always_inline]] inline Function real_function(Guarded which) {
  return reinterpret_cast<Function>(driver.real[which]);
}

/// Has cuInit succeeded in this process? Then all calls pass.
[[gnu::always_inline]] inline bool is_open() {
  const Process* here = driver.process.load(std::memory_order_acquire);
  return here != nullptr && here->open.load(std::memory_order_relaxed) != 0;
}

namespace detail {
/// The slow way: binds what is not bound yet, and decides.
bool may_pass(const char* api);
}  // namespace detail

/// May this call go on to the real driver? `api` is a constant.
[[gnu::always_inline]] inline bool may_pass(const char* api) {
  return is_open() || detail::may_pass(api);
}

/// How many devices the real driver shows; 0: it does not say.
int real_count();

/// cuInit(0) with the allow-list enforced; once per process, until it succeeds.
Result init(const void* caller);

}  // namespace cudaguard

// SPDX-License-Identifier: Apache-2.0
// What the driver companion knows: the real functions, whether calls may pass in this process, and
// the real cuInit, done once. Thread-safe; a forked child starts anew.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shim/companion/guard.h"

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

// NOLINTBEGIN(bugprone-dynamic-static-initializers): all are constant initialised
/// The real functions; null where the real driver has none of that name.
extern constinit void* real_functions[kGuardedCount];
/// Ours, and their names.
extern void* const own_functions[kGuardedCount];
extern const char* const guarded_names[kGuardedCount];
// NOLINTEND(bugprone-dynamic-static-initializers)

template <typename Function>
[[gnu::always_inline]] inline Function real_function(Guarded which) {
  return reinterpret_cast<Function>(real_functions[which]);
}

/// Of this process; in pages that the kernel wipes in a forked child.
struct InProcess {
  std::atomic<uint32_t> open;  ///< 1: calls pass without a further look
  bool initialised;            ///< under the lock: the real cuInit has succeeded here
};
namespace detail {
extern constinit std::atomic<InProcess*>
    in_process;  // NOLINT(bugprone-dynamic-static-initializers): constinit
/// The slow way: binds what is not bound yet, and decides.
bool may_pass(const char* api);
}  // namespace detail

/// May this call go on to the real driver? `api` is a constant.
[[gnu::always_inline]] inline bool may_pass(const char* api) {
  const InProcess* here = detail::in_process.load(std::memory_order_acquire);
  if (here != nullptr && here->open.load(std::memory_order_relaxed) == 1) [[likely]] {
    return true;
  }
  return detail::may_pass(api);
}

/// The real cuDeviceGetCount, or null.
using GetCount = Result (*)(int*);
GetCount real_count();

/// cuInit(0) with the allow-list enforced; once per process, until it succeeds.
Result init(const void* caller);

/// The guard of this process, after a successful may_pass.
const Services& guard_services();

}  // namespace cudaguard

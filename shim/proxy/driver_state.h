// SPDX-License-Identifier: Apache-2.0
// State of the driver proxy: the real functions, whether calls may pass in this process, and
// the one call of the real cuInit. Thread-safe. In a forked child is_open() is false again.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "policy/driver_api.h"
#include "shim/proxy/guard.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

// Values of cuda.h, which is not included because its versions declare different functions.
using Result = int;
inline constexpr Result kSuccess = 0;
inline constexpr Result kInvalidValue = 1;
inline constexpr Result kInvalidDevice = 101;
inline constexpr Result kNotFound = 500;

enum Guarded : size_t {
#define GUARDED_DRIVER(name, where) k_##name,
#include "shim/api/guarded.inc"
  kGuardedCount
};

/// The proxy's own functions, and their names.
// NOLINTBEGIN(bugprone-dynamic-static-initializers): constants
extern void* const own_functions[kGuardedCount];
extern const char* const guarded_names[kGuardedCount];
// NOLINTEND(bugprone-dynamic-static-initializers)

struct Plan;

struct DriverProxyState : ProxyState {
  /// The process in which cuInit of this driver succeeded; its pages are wiped in a forked child.
  /// (Another dlmopen namespace has its own driver and its own proxy.)
  std::atomic<const Process*> process{nullptr};

  /// The real functions; null if the real driver has none of that name.
  void* real[kGuardedCount] = {};

  bool redirected = false;  ///< the driver's slot for getenv points to us
  /// The answer for CUDA_VISIBLE_DEVICES, and how often the driver has read the variable.
  std::atomic<const Plan*> plan{nullptr};
  std::atomic<uint32_t> times_asked{0};
};
extern constinit DriverProxyState
    driver;  // NOLINT(bugprone-dynamic-static-initializers): constinit

template <typename Function>
[[gnu::always_inline]] inline Function real_function(Guarded which) {
  return reinterpret_cast<Function>(driver.real[which]);
}

/// Exists while the driver initialises itself or makes a context, which takes long: a process that
/// ends meanwhile has asked, too.
class DriverCall {
 public:
  DriverCall(Beacon what, const void* caller) : heard_(the_guard().begin_call(what, caller)) {}
  ~DriverCall() {
    if (heard_) the_guard().end_call();
  }
  DriverCall(const DriverCall&) = delete;
  DriverCall& operator=(const DriverCall&) = delete;

 private:
  bool heard_;
};

/// True if cuInit has succeeded in this process. All calls pass then.
[[gnu::always_inline]] inline bool is_open() {
  const Process* process = driver.process.load(std::memory_order_acquire);
  return process != nullptr && process->proxy.open.load(std::memory_order_relaxed) != 0;
}

namespace detail {
/// Slow path: binds the real functions if necessary, and decides.
bool may_pass(const char* api, const void* caller);
}  // namespace detail

/// True if this call may go on to the real driver. `api` is a constant, or null for a look-up.
[[gnu::always_inline]] inline bool may_pass(const char* api, const void* caller) {
  return is_open() || detail::may_pass(api, caller);
}

/// Number of devices that the real driver shows, 0 if it returns an error.
int real_count();

/// Calls the real cuInit(0) with the allow-list enforced, unless it has already succeeded here.
Result init(const void* caller);

}  // namespace cudaguard

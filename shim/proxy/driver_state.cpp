// SPDX-License-Identifier: Apache-2.0
#include "shim/proxy/driver_state.h"

#include <dlfcn.h>

#include "policy/device_list.h"
#include "shim/guard/sys/memory.h"
#include "shim/guard/sys/system.h"
#include "shim/proxy/gpus.h"
#include "shim/proxy/visible_devices.h"

namespace cudaguard {

// The compiler checks that this is all zero, because it is in .bss, like the guard's state.
[[gnu::section(".bss.driver")]] constinit DriverProxyState driver;
ProxyState& proxy_state() { return driver; }

const char* const guarded_names[kGuardedCount] = {
#define GUARDED_DRIVER(name, where) #name,
#include "shim/api/guarded.inc"
};

namespace {

/// Threads that race here find the same functions. The lock protects the pages that become writable
/// for a moment. No code under the lock waits for ld.so, because a constructor that calls us may
/// hold ld.so's lock.
void bind_to(const Services& guard, const RealLibrary& real) {
  const Lock lock(guard.process().proxy.binding);
  if (driver.bound.load(std::memory_order_relaxed)) return;  // other threads read it already
  for (size_t i = 0; i < kGuardedCount; ++i) {
    driver.real[i] = real.symbol(guarded_names[i]);
    if (driver.real[i] == nullptr) hide_own_symbol(guarded_names[i]);
  }
  bind_visible_devices(guard.process(), real);
  driver.bound.store(true, std::memory_order_release);
}

void bind(const Services& guard) {
  const RealLibrary real = open_real(guard.loader(), "libcuda.so.1", RTLD_NOLOAD);
  if (!guard.process().decision.allow_list.text.empty()) open_nvml(guard.loader());
  bind_to(guard, real);
  // The driver's slot for getenv points to this proxy, which must stay as long as the driver.
  if (driver.redirected) {
    open_real(guard.loader(), "libcudaguard-driver.so", RTLD_NOLOAD | RTLD_NODELETE);
  } else if (real.found()) {
    guard.loader().dlclose(const_cast<link_map*>(real.map()));  // our DT_NEEDED keeps it
  }
}

}  // namespace

bool detail::may_pass(const char* api, const void* caller) {
  const Services* guard = find_guard();
  if (guard == nullptr) return false;
  if (!driver.bound.load(std::memory_order_acquire)) bind(*guard);
  Process& process = guard->process();
  const Policy policy = guard->policy(process);
  if (policy == Policy::kOff) return true;
  if (policy == Policy::kForceCpu) return false;
  if (api != nullptr) guard->check_fork(process, api, caller);
  if (!list_is_enforced(process)) return false;
  // is_open() stays false until cuInit succeeds, because cuInit may still end in FORCE_CPU.
  return driver.real[k_cuInit] != nullptr;
}

Result init(const void* caller) {
  const Services& guard = the_guard();
  Process& process = guard.process();
  if (is_open()) return kSuccess;
  const uint32_t self = sys::gettid();
  if (process.proxy.initialiser.load(std::memory_order_relaxed) == self) {
    // The driver's cuInit has loaded a library (CUDA_INJECTION64_PATH) that calls it, too.
    return real_function<Result (*)(unsigned)>(k_cuInit)(0);
  }
  const Lock lock(process.proxy.initialising);
  if (is_open()) return kSuccess;
  // While this thread waited, another thread's cuInit may have ended in FORCE_CPU.
  if (guard.policy(process) == Policy::kForceCpu) return kNoDevice;
  const DriverCall call(Beacon::kCuda, caller);
  process.proxy.initialiser.store(self, std::memory_order_relaxed);
  const Result result = init_inside_list(process, caller);
  process.proxy.initialiser.store(0, std::memory_order_relaxed);
  if (result != kSuccess && guard.policy(process) != Policy::kForceCpu) {
    guard.record_event(process, {.api = "cuInit", .caller = caller, .result = result});
  }
  if (result == kSuccess && process.only_pid == 0) {
    process.proxy.open.store(1, std::memory_order_relaxed);
    driver.process.store(&process, std::memory_order_release);
    // Meanwhile the NVML proxy may have found that the list is wrong.
    if (guard.policy(process) == Policy::kForceCpu)
      process.proxy.open.store(0, std::memory_order_relaxed);
  }
  return result;
}

}  // namespace cudaguard

extern "C" [[gnu::visibility("default")]] cudaguard::Prepared cudaguard_proxy_prepare_v2(
    const cudaguard::Services* guard) {
  using namespace cudaguard;  // NOLINT(google-build-using-namespace)
  if (!adopt_guard(guard)) return Prepared::kOtherBuild;
  if (!driver.bound.load(std::memory_order_acquire)) bind(the_guard());
  return list_is_enforced(guard->process()) ? Prepared::kReady : Prepared::kNotEnforced;
}

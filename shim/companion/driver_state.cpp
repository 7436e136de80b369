// SPDX-License-Identifier: Apache-2.0
#include "shim/companion/driver_state.h"

#include <dlfcn.h>

#include "shim/companion/gpus.h"
#include "shim/companion/visible_devices.h"
#include "shim/sys/memory.h"

namespace cudaguard {

constinit void* real_functions[kGuardedCount] = {};
constinit std::atomic<InProcess*> detail::in_process{nullptr};

const char* const guarded_names[kGuardedCount] = {
#define GUARDED_DRIVER(name, where) #name,
#include "shim/api/guarded.inc"
};

namespace {

constinit std::atomic<bool> bound{false};

/// For a process that cannot map a page: every call takes the slow way.
constinit InProcess without_memory = {};

InProcess& this_process() {
  InProcess* here = detail::in_process.load(std::memory_order_acquire);
  if (here != nullptr) return *here;
  constexpr size_t kPages = 4096;
  void* fresh = sys::map(kPages);
  if (fresh == nullptr || !sys::wipe_on_fork(fresh, kPages)) {
    if (fresh != nullptr) sys::unmap(fresh, kPages);
    return without_memory;
  }
  if (detail::in_process.compare_exchange_strong(here, static_cast<InProcess*>(fresh),
                                                 std::memory_order_acq_rel)) {
    return *static_cast<InProcess*>(fresh);
  }
  sys::unmap(fresh, kPages);
  return *here;
}

/// Threads that race find the same. The lock is for the pages that are made writable for a moment;
/// nothing under it waits for ld.so, whose lock a constructor may hold that calls us.
void bind_to(const Services& guard, const RealLibrary& real) {
  const Lock lock(guard.locks().binding);
  if (bound.load(std::memory_order_relaxed)) return;  // others are reading it
  for (size_t i = 0; i < kGuardedCount; ++i) {
    real_functions[i] = real.symbol(guarded_names[i]);
    if (real_functions[i] == nullptr) hide_own_symbol(guarded_names[i]);
  }
  bind_visible_devices(guard, real);
  bound.store(true, std::memory_order_release);
}

void bind(const Services& guard) {
  const RealLibrary real = open_real(guard.loader(), "libcuda.so.1", RTLD_NOLOAD);
  if (!guard.allow_list().empty()) open_nvml(guard.loader());
  bind_to(guard, real);
  // The slot leads here: this companion must stay as long as the driver may.
  if (slot_is_redirected()) {
    open_real(guard.loader(), "libcudaguard-driver.so", RTLD_NOLOAD | RTLD_NODELETE);
  } else if (real.found()) {
    guard.loader().dlclose(const_cast<link_map*>(real.map()));  // our DT_NEEDED holds it
  }
}

const char* prepare(const Services& guard) {
  if (!bound.load(std::memory_order_acquire)) bind(guard);
  return why_not_enforced();
}

}  // namespace

const Services& guard_services() { return *find_guard(); }

bool detail::may_pass(const char* api) {
  const Services* guard = find_guard();
  if (guard == nullptr) return false;
  const char* why = prepare(*guard);
  const Policy policy = guard->policy();
  if (policy == Policy::kOff) return true;
  if (policy == Policy::kForceCpu) return false;
  guard->check_fork(api);
  if (why != nullptr) {
    guard->fall_back(Process::kNotEnforced);
    return false;
  }
  // Before cuInit nothing is open: what it finds may close it again.
  return real_functions[k_cuInit] != nullptr;
}

Result init(const void* caller) {
  const Services& guard = guard_services();
  InProcess& here = this_process();
  if (here.open.load(std::memory_order_acquire) == 1) return kSuccess;
  const Lock lock(guard.locks().initialising);
  if (here.initialised) return kSuccess;
  // Another thread's try may have ended in FORCE_CPU.
  if (guard.policy() == Policy::kForceCpu) return kNoDevice;
  const Result result = init_inside_list(guard, caller);
  if (result != kSuccess && guard.policy() != Policy::kForceCpu) {
    guard.record_event({.api = "cuInit", .caller = caller, .result = result});
  }
  here.initialised = result == kSuccess && &here != &without_memory;
  if (here.initialised) here.open.store(1, std::memory_order_release);
  return result;
}

}  // namespace cudaguard

extern "C" [[gnu::visibility("default")]] const char* cudaguard_companion_prepare_v1(
    const cudaguard::Services* guard) {
  if (!cudaguard::adopt_guard(guard)) return "";
  return cudaguard::prepare(*cudaguard::find_guard());
}

// SPDX-License-Identifier: Apache-2.0
#include "shim/proxy/nvml_state.h"

#include <dlfcn.h>

#include "policy/device_list.h"
#include "shim/guard/elf/own_symbols.h"
#include "shim/guard/sys/memory.h"

namespace cudaguard {

// The compiler checks that this is all zero, because it is in .bss, like the guard's state.
[[gnu::section(".bss.nvml")]] constinit NvmlProxyState nvml;
ProxyState& proxy_state() { return nvml; }

namespace {

constexpr const char* kNames[kGuardedCount] = {
#define GUARDED_NVML(name, where) #name,
#include "shim/api/guarded.inc"
};

void prepare(const Services& guard) {
  if (nvml.bound.load(std::memory_order_acquire)) return;
  const RealLibrary real = open_real(guard.loader(), "libnvidia-ml.so.1", RTLD_NOLOAD);
  if (real.found()) guard.loader().dlclose(const_cast<link_map*>(real.map()));  // as in bind()
  const Extent inside = real.found() ? code_of(real.map()->l_ld, real.map()->l_addr) : Extent();
  const Extent self = code_of(_DYNAMIC, own_base());
  const Lock lock(guard.process().proxy.binding);
  if (nvml.bound.load(std::memory_order_relaxed)) return;  // other threads read it already
  for (size_t i = 0; i < kGuardedCount; ++i) {
    nvml.real[i] = real.symbol(kNames[i]);
    if (nvml.real[i] == nullptr) hide_own_symbol(kNames[i]);
  }
  nvml.is_mig = reinterpret_cast<decltype(nvml.is_mig)>(real.symbol("nvmlDeviceIsMigDeviceHandle"));
  nvml.parent = reinterpret_cast<decltype(nvml.parent)>(
      real.symbol("nvmlDeviceGetDeviceHandleFromMigDeviceHandle"));
  nvml.inside = inside;
  nvml.self = self;
  nvml.bound.store(true, std::memory_order_release);
}

}  // namespace

Access access(const void* caller) {
  const Services* guard = find_guard();
  if (guard == nullptr) return {};
  prepare(*guard);
  const Process& process = guard->process();
  switch (guard->policy(process)) {
    case Policy::kForceCpu:
      return {Way::kDeny, guard};
    case Policy::kOff:
      return {Way::kForward, guard};
    default:
      if (nvml.inside.holds(caller) || nvml.self.holds(caller)) return {Way::kForward, guard};
      return {process.decision.allow_list.text.empty() ? Way::kForward : Way::kFilter, guard, true};
  }
}

nvmlDevice_t parent_gpu(nvmlDevice_t device) {
  unsigned is_mig = 0;
  nvmlDevice_t parent = nullptr;
  if (nvml.is_mig == nullptr || nvml.is_mig(device, &is_mig) != NVML_SUCCESS || is_mig == 0) {
    return nullptr;
  }
  if (nvml.parent == nullptr || nvml.parent(device, &parent) != NVML_SUCCESS) return nullptr;
  return parent;
}

bool make_view(const Services& guard) {
  if (shown() != nullptr) return true;
  const sys::Mapped<Allowed> allowed;
  auto* view = static_cast<Shown*>(sys::map(sizeof(Shown)));
  if (!allowed || view == nullptr) return false;
  resolve_list(*allowed);
  if (allowed->view.error.why != ListError::Why::kNone) {
    guard.fall_back(guard.process(), Fallen::kNotAccepted);
    sys::unmap(view, sizeof(Shown));
    return false;
  }
  for (size_t i = 0; i < allowed->view.count; ++i) {
    // For a MIG device NVML shows the GPU that contains the device, once.
    const unsigned gpu = allowed->machine.devices[allowed->view.devices[i]].gpu;
    bool known = false;
    for (unsigned k = 0; k < view->count; ++k) known = known || view->physical[k] == gpu;
    if (!known) view->physical[view->count++] = gpu;
  }
  const Shown* none = nullptr;
  if (!nvml.shown.compare_exchange_strong(none, view, std::memory_order_acq_rel)) {
    sys::unmap(view, sizeof(Shown));
  }
  return true;
}

}  // namespace cudaguard

extern "C" [[gnu::visibility("default")]] cudaguard::Prepared cudaguard_proxy_prepare_v2(
    const cudaguard::Services* guard) {
  if (!cudaguard::adopt_guard(guard)) return cudaguard::Prepared::kOtherBuild;
  cudaguard::prepare(*cudaguard::find_guard());
  return cudaguard::Prepared::kReady;
}

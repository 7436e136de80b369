// SPDX-License-Identifier: Apache-2.0
#include "shim/companion/nvml_state.h"

#include <dlfcn.h>

#include "shim/sys/memory.h"

namespace cudaguard {

constinit void* real_functions[kGuardedCount] = {};

namespace {

constexpr const char* kNames[kGuardedCount] = {
#define GUARDED_NVML(name, where) #name,
#include "shim/api/guarded.inc"
};

constinit std::atomic<bool> bound{false};
constinit std::atomic<const Shown*> current{nullptr};
using Parent = nvmlReturn_t (*)(nvmlDevice_t, nvmlDevice_t*);
using IsMig = nvmlReturn_t (*)(nvmlDevice_t, unsigned*);
constinit Parent real_parent = nullptr;
constinit IsMig real_is_mig = nullptr;

void prepare(const Services& guard) {
  if (bound.load(std::memory_order_acquire)) return;
  const RealLibrary real = open_real(guard.loader(), "libnvidia-ml.so.1", RTLD_NOLOAD);
  const Lock lock(guard.locks().binding);
  if (bound.load(std::memory_order_relaxed)) return;  // others are reading it
  for (size_t i = 0; i < kGuardedCount; ++i) {
    real_functions[i] = real.symbol(kNames[i]);
    if (real_functions[i] == nullptr) hide_own_symbol(kNames[i]);
  }
  real_is_mig = reinterpret_cast<IsMig>(real.symbol("nvmlDeviceIsMigDeviceHandle"));
  real_parent =
      reinterpret_cast<Parent>(real.symbol("nvmlDeviceGetDeviceHandleFromMigDeviceHandle"));
  bound.store(true, std::memory_order_release);
}

}  // namespace

Access access() {
  const Services* guard = find_guard();
  if (guard == nullptr) return {};
  prepare(*guard);
  switch (guard->policy()) {
    case Policy::kForceCpu:
      return {Way::kDeny, guard};
    case Policy::kOff:
      return {Way::kForward, guard};
    default:
      return {guard->allow_list().empty() ? Way::kForward : Way::kFilter, guard};
  }
}

nvmlDevice_t parent_gpu(nvmlDevice_t device) {
  unsigned is_mig = 0;
  nvmlDevice_t parent = nullptr;
  if (real_is_mig == nullptr || real_is_mig(device, &is_mig) != NVML_SUCCESS || is_mig == 0) {
    return nullptr;
  }
  if (real_parent == nullptr || real_parent(device, &parent) != NVML_SUCCESS) return nullptr;
  return parent;
}

const Shown* shown() { return current.load(std::memory_order_acquire); }

bool make_view(const Services& guard) {
  if (shown() != nullptr) return true;
  const sys::Mapped<Allowed> allowed;
  auto* view = static_cast<Shown*>(sys::map(sizeof(Shown)));
  if (!allowed || view == nullptr) return false;
  resolve_list(guard, *allowed);
  if (allowed->view.error.why != ListError::Why::kNone) {
    guard.fall_back(Process::kNotAccepted);
    sys::unmap(view, sizeof(Shown));
    return false;
  }
  for (size_t i = 0; i < allowed->view.count; ++i) {
    // Of a MIG device NVML shows the GPU that it is a part of, once.
    const unsigned gpu = allowed->machine.devices[allowed->view.devices[i]].gpu;
    bool known = false;
    for (unsigned k = 0; k < view->count; ++k) known = known || view->physical[k] == gpu;
    if (!known) view->physical[view->count++] = gpu;
  }
  const Shown* none = nullptr;
  if (!current.compare_exchange_strong(none, view, std::memory_order_acq_rel)) {
    sys::unmap(view, sizeof(Shown));
  }
  return true;
}

}  // namespace cudaguard

extern "C" [[gnu::visibility("default")]] const char* cudaguard_companion_prepare_v1(
    const cudaguard::Services* guard) {
  if (!cudaguard::adopt_guard(guard)) return "";
  cudaguard::prepare(*cudaguard::find_guard());
  return nullptr;
}

// SPDX-License-Identifier: Apache-2.0
#include "shim/proxy/gpus.h"

#include "policy/device_list.h"
#include "shim/guard/text/message.h"

namespace cudaguard {

namespace {

template <typename Function>
void take(Function& slot, const RealLibrary& library, const char* name) {
  slot = reinterpret_cast<Function>(library.symbol(name));
}

/// Returns false if `machine` is full.
bool add(Machine& machine, const Nvml& nvml, nvmlDevice_t handle, unsigned gpu, bool mig) {
  constexpr size_t kRoom = sizeof machine.devices / sizeof machine.devices[0];
  if (machine.count == kRoom) return false;
  Machine::Device& device = machine.devices[machine.count++];
  device = {};
  device.gpu = static_cast<uint16_t>(gpu);
  device.mig = mig;
  // A GPU that does not report its UUID (lost, or in error) keeps its place without one.
  if (handle == nullptr || nvml.uuid(handle, device.uuid, sizeof device.uuid) != NVML_SUCCESS) {
    device.uuid[0] = '\0';
  }
  return true;
}

bool add_mig_devices(Machine& machine, const Nvml& nvml, unsigned gpu) {
  nvmlDevice_t parent = nullptr;
  unsigned most = 0;
  if (nvml.most_mig == nullptr || nvml.mig_by_index == nullptr) return true;
  if (nvml.by_index(gpu, &parent) != NVML_SUCCESS) return true;
  if (nvml.most_mig(parent, &most) != NVML_SUCCESS) return true;
  for (unsigned i = 0; i < most; ++i) {
    nvmlDevice_t handle = nullptr;
    if (nvml.mig_by_index(parent, i, &handle) != NVML_SUCCESS) continue;
    if (!add(machine, nvml, handle, gpu, true)) return false;
  }
  return true;
}

size_t count_gpus(const Machine& machine) {
  size_t gpus = 0;
  while (machine.known && gpus < machine.count && !machine.devices[gpus].mig) ++gpus;
  return gpus;
}

}  // namespace

Nvml::Nvml(const RealLibrary& library) {
  take(init_with_flags, library, "nvmlInitWithFlags");
  take(init_v2, library, "nvmlInit_v2");
  take(shutdown, library, "nvmlShutdown");
  take(count, library, "nvmlDeviceGetCount_v2");
  take(by_index, library, "nvmlDeviceGetHandleByIndex_v2");
  take(uuid, library, "nvmlDeviceGetUUID");
  take(most_mig, library, "nvmlDeviceGetMaxMigDeviceCount");
  take(mig_by_index, library, "nvmlDeviceGetMigDeviceHandleByIndex");
}

bool list_gpus(const Nvml& nvml, Machine& machine) {
  unsigned gpus = 0;
  machine.count = 0;
  machine.known = true;
  if (nvml.count(&gpus) != NVML_SUCCESS) return false;
  for (unsigned i = 0; i < gpus; ++i) {
    nvmlDevice_t handle = nullptr;
    if (nvml.by_index(i, &handle) != NVML_SUCCESS) handle = nullptr;
    if (!add(machine, nvml, handle, i, false)) return false;
  }
  for (unsigned i = 0; i < gpus; ++i) {
    if (!add_mig_devices(machine, nvml, i)) return false;
  }
  return true;
}

void open_nvml(const Loader& loader) {
  if (proxy_state().kept_nvml.load(std::memory_order_acquire) != nullptr) return;
  proxy_state().kept_nvml.store(open_real(loader, "libnvidia-ml.so.1", 0).map(),
                                std::memory_order_release);
}

void resolve_list(Allowed& allowed) {
  const Services& guard = the_guard();
  Process& process = guard.process();
  const std::string_view text = process.decision.allow_list.text;
  const AllowList list = parse_allow_list(text);
  bool listed = false;
  open_nvml(guard.loader());
  const Nvml nvml(RealLibrary(proxy_state().kept_nvml.load(std::memory_order_acquire)));
  if (nvml.usable() && nvml.init()) {
    listed = list_gpus(nvml, allowed.machine);
    nvml.shutdown();
  }
  // On a machine without a GPU no entry is at fault, and the driver reports what is wrong.
  if (listed && has_no_gpu(allowed)) return;
  if (listed) {
    allowed.view = resolve(list, allowed.machine);
  } else {
    const ListError error = machine_from_list(list, allowed.machine);
    if (error.why == ListError::Why::kNone) {
      allowed.view = resolve(list, allowed.machine);
    } else {
      allowed.view.count = 0;
      allowed.view.error = error;
    }
  }
  if (allowed.view.error.why == ListError::Why::kNone) return;
  const ListErrorFacts facts = {text, allowed.view.error, count_gpus(allowed.machine),
                                process.decision.allow_list.by, process.decision.allow_list.place};
  guard.print_message(process, Message::kList, write_line_of<write_list_error, ListErrorFacts>,
                      &facts);
}

}  // namespace cudaguard

// SPDX-License-Identifier: Apache-2.0
//
// The NVML proxy, libcudaguard-nvml.so, whose DT_NEEDED is the real libnvidia-ml.so.1. NVML does
// not know CUDA_VISIBLE_DEVICES. Under an allow-list the proxy shows only the allowed GPUs, as in a
// container that has no others, so that NVML and CUDA agree (PyTorch compares the two).
#include "policy/driver_api.h"
#include "shim/api/cuda.h"
#include "shim/proxy/nvml_state.h"

using namespace cudaguard;  // NOLINT(google-build-using-namespace): only extern "C" below

namespace {

#define CG_CALLER __builtin_return_address(0)
#define CG_REAL(name) reinterpret_cast<decltype(&::name)>(nvml.real[k_##name])

/// Begins every function. An older NVML lacks some of the names, and the program may have looked up
/// our function before prepare() hid its name.
#define CG_NEED(name)                                                      \
  do {                                                                     \
    if (access(CG_CALLER).way != Way::kDeny && CG_REAL(name) == nullptr) { \
      return NVML_ERROR_FUNCTION_NOT_FOUND;                                \
    }                                                                      \
  } while (false)

nvmlReturn_t denied_init(const Access& now, const char* api, const void* caller) {
  if (now.guard != nullptr) now.guard->record_attempt(now.guard->process(), api, nullptr, caller);
  return static_cast<nvmlReturn_t>(nvml_refusal(api));
}

nvmlReturn_t initialised(const Access& now, nvmlReturn_t result, const char* api,
                         const void* caller) {
  if (result == NVML_SUCCESS && now.way == Way::kFilter && !make_view(*now.guard)) {
    return denied_init(now, api, caller);
  }
  if (now.records) {
    now.guard->record_event(
        now.guard->process(),
        {.kind = Event::Kind::kNvml, .api = api, .caller = caller, .result = result});
  }
  return result;
}

nvmlReturn_t put(unsigned* out, unsigned value) {
  if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *out = value;
  return NVML_SUCCESS;
}

template <typename Real>
nvmlReturn_t counted(Real real, unsigned* count, const char* api, const void* caller) {
  const Access now = access(caller);
  if (now.way == Way::kDeny) return put(count, 0);
  const nvmlReturn_t result = real(count);
  if (result != NVML_SUCCESS || !now.records) return result;
  if (now.way == Way::kFilter) {
    const Shown* view = shown();
    if (const nvmlReturn_t put_result = put(count, view != nullptr ? view->count : 0);
        put_result != NVML_SUCCESS) {
      return put_result;
    }
  }
  now.guard->note_count(now.guard->process(), api, caller, *count);
  return result;
}

template <typename Real>
nvmlReturn_t by_index(Real real, unsigned index, nvmlDevice_t* device, const void* caller) {
  const Access now = access(caller);
  if (now.way == Way::kDeny) return NVML_ERROR_INVALID_ARGUMENT;
  if (now.way == Way::kForward) return real(index, device);
  const Shown* view = shown();
  // The real function checks whether NVML is initialised. No machine has this index.
  if (view == nullptr || index >= view->count) return real(~0U, device);
  return real(view->physical[index], device);
}

/// The position of a GPU among the shown GPUs, or -1.
int position_of(const Shown& view, nvmlDevice_t device) {
  unsigned physical = 0;
  if (CG_REAL(nvmlDeviceGetIndex)(device, &physical) != NVML_SUCCESS) return -1;
  for (unsigned i = 0; i < view.count; ++i) {
    if (view.physical[i] == physical) return static_cast<int>(i);
  }
  return -1;
}

/// True if the handle is that of a shown GPU, or of a MIG device of a shown GPU.
bool is_shown(const Shown& view, nvmlDevice_t device) {
  if (nvmlDevice_t parent = parent_gpu(device); parent != nullptr) device = parent;
  return position_of(view, device) >= 0;
}

/// Looks a handle up by UUID, serial number or bus id. A hidden GPU is not found.
template <typename Ask>
nvmlReturn_t by_name(nvmlDevice_t* device, const void* caller, Ask ask) {
  const Access now = access(caller);
  if (now.way == Way::kDeny) return NVML_ERROR_NOT_FOUND;
  if (now.way == Way::kForward || device == nullptr) return ask(device);
  nvmlDevice_t found = nullptr;
  const nvmlReturn_t result = ask(&found);
  if (result != NVML_SUCCESS) return result;
  const Shown* view = shown();
  if (view == nullptr || !is_shown(*view, found)) return NVML_ERROR_NOT_FOUND;
  *device = found;
  return result;
}

/// Answers a query that fills an array of handles, without the hidden GPUs.
template <typename Ask>
nvmlReturn_t listed(unsigned* count, nvmlDevice_t* devices, const void* caller, Ask ask) {
  const Access now = access(caller);
  if (now.way == Way::kDeny) return NVML_ERROR_INVALID_ARGUMENT;
  if (now.way == Way::kForward || count == nullptr) return ask(count, devices);
  const Shown* view = shown();
  nvmlDevice_t all[kMostGpus];
  unsigned found = kMostGpus;
  const nvmlReturn_t result = ask(&found, all);
  if (result != NVML_SUCCESS || view == nullptr) return result;
  unsigned kept = 0;
  for (unsigned i = 0; i < found && i < kMostGpus; ++i) {
    if (!is_shown(*view, all[i])) continue;
    if (devices != nullptr && kept < *count) devices[kept] = all[i];
    ++kept;
  }
  // NVML returns the number that exists or, if smaller, the number that the caller asked for.
  if (devices == nullptr || kept < *count) *count = kept;
  return result;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

nvmlReturn_t nvmlInit(void) {
  CG_NEED(nvmlInit);
  const Access now = access(CG_CALLER);
  if (now.way == Way::kDeny) return denied_init(now, "nvmlInit", CG_CALLER);
  return initialised(now, CG_REAL(nvmlInit)(), "nvmlInit", CG_CALLER);
}

nvmlReturn_t nvmlInit_v2(void) {
  CG_NEED(nvmlInit_v2);
  const Access now = access(CG_CALLER);
  if (now.way == Way::kDeny) return denied_init(now, "nvmlInit_v2", CG_CALLER);
  return initialised(now, CG_REAL(nvmlInit_v2)(), "nvmlInit_v2", CG_CALLER);
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
  CG_NEED(nvmlInitWithFlags);
  const Access now = access(CG_CALLER);
  if (now.way == Way::kDeny) return denied_init(now, "nvmlInitWithFlags", CG_CALLER);
  return initialised(now, CG_REAL(nvmlInitWithFlags)(flags), "nvmlInitWithFlags", CG_CALLER);
}

nvmlReturn_t nvmlShutdown(void) {
  CG_NEED(nvmlShutdown);
  return access(CG_CALLER).way == Way::kDeny ? NVML_SUCCESS : CG_REAL(nvmlShutdown)();
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int* count) {
  CG_NEED(nvmlDeviceGetCount);
  return counted(CG_REAL(nvmlDeviceGetCount), count, "nvmlDeviceGetCount", CG_CALLER);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int* count) {
  CG_NEED(nvmlDeviceGetCount_v2);
  return counted(CG_REAL(nvmlDeviceGetCount_v2), count, "nvmlDeviceGetCount_v2", CG_CALLER);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t* device) {
  CG_NEED(nvmlDeviceGetHandleByIndex);
  return by_index(CG_REAL(nvmlDeviceGetHandleByIndex), index, device, CG_CALLER);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t* device) {
  CG_NEED(nvmlDeviceGetHandleByIndex_v2);
  return by_index(CG_REAL(nvmlDeviceGetHandleByIndex_v2), index, device, CG_CALLER);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* device) {
  CG_NEED(nvmlDeviceGetHandleByUUID);
  return by_name(device, CG_CALLER,
                 [uuid](nvmlDevice_t* to) { return CG_REAL(nvmlDeviceGetHandleByUUID)(uuid, to); });
}

nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const nvmlUUID_t* uuid, nvmlDevice_t* device) {
  CG_NEED(nvmlDeviceGetHandleByUUIDV);
  return by_name(device, CG_CALLER, [uuid](nvmlDevice_t* to) {
    return CG_REAL(nvmlDeviceGetHandleByUUIDV)(uuid, to);
  });
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char* serial, nvmlDevice_t* device) {
  CG_NEED(nvmlDeviceGetHandleBySerial);
  return by_name(device, CG_CALLER, [serial](nvmlDevice_t* to) {
    return CG_REAL(nvmlDeviceGetHandleBySerial)(serial, to);
  });
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char* id, nvmlDevice_t* device) {
  CG_NEED(nvmlDeviceGetHandleByPciBusId);
  return by_name(device, CG_CALLER,
                 [id](nvmlDevice_t* to) { return CG_REAL(nvmlDeviceGetHandleByPciBusId)(id, to); });
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* id, nvmlDevice_t* device) {
  CG_NEED(nvmlDeviceGetHandleByPciBusId_v2);
  return by_name(device, CG_CALLER, [id](nvmlDevice_t* to) {
    return CG_REAL(nvmlDeviceGetHandleByPciBusId_v2)(id, to);
  });
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int* index) {
  CG_NEED(nvmlDeviceGetIndex);
  const Access now = access(CG_CALLER);
  if (now.way == Way::kDeny) return NVML_ERROR_INVALID_ARGUMENT;
  const nvmlReturn_t result = CG_REAL(nvmlDeviceGetIndex)(device, index);
  const Shown* view = shown();
  if (now.way == Way::kForward || result != NVML_SUCCESS || view == nullptr) return result;
  if (parent_gpu(device) != nullptr) return result;  // it is a MIG device's index inside its GPU
  const int position = position_of(*view, device);
  if (position < 0) return NVML_ERROR_INVALID_ARGUMENT;
  *index = static_cast<unsigned>(position);
  return result;
}

// CUDA must not show another mode (cuDeviceGetAttribute).
nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t* mode) {
  CG_NEED(nvmlDeviceGetComputeMode);
  const Access now = access(CG_CALLER);
  if (now.way == Way::kDeny) return NVML_ERROR_INVALID_ARGUMENT;
  const nvmlReturn_t result = CG_REAL(nvmlDeviceGetComputeMode)(device, mode);
  const bool prohibited =
      now.guard != nullptr && refuses_contexts(now.guard->policy(now.guard->process()));
  if (result == NVML_SUCCESS && prohibited) *mode = NVML_COMPUTEMODE_PROHIBITED;
  return result;
}

nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, nvmlGpuTopologyLevel_t level,
                                              unsigned int* count, nvmlDevice_t* devices) {
  CG_NEED(nvmlDeviceGetTopologyNearestGpus);
  return listed(count, devices, CG_CALLER, [device, level](unsigned* number, nvmlDevice_t* to) {
    return CG_REAL(nvmlDeviceGetTopologyNearestGpus)(device, level, number, to);
  });
}

nvmlReturn_t nvmlSystemGetTopologyGpuSet(unsigned int cpu, unsigned int* count,
                                         nvmlDevice_t* devices) {
  CG_NEED(nvmlSystemGetTopologyGpuSet);
  return listed(count, devices, CG_CALLER, [cpu](unsigned* number, nvmlDevice_t* to) {
    return CG_REAL(nvmlSystemGetTopologyGpuSet)(cpu, number, to);
  });
}
}
#pragma GCC visibility pop

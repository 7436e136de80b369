// SPDX-License-Identifier: Apache-2.0
// The exports for programs that are *linked* to the driver or NVML: ld.so maps the real library
// before the guard can act. Under FORCE_CPU the real driver must stay uninitialised. Before cuInit,
// its other exports open nothing (measured with 535: each one was called). Under VALIDATE and CLAMP
// these exports lead to the proxies.
#include "policy/driver_api.h"
#include "shim/api/cuda.h"
#include "shim/guard/exports/denied.h"
#include "shim/guard/exports/next_definition.h"
#include "shim/guard/hook/null_drivers.h"

namespace cudaguard {
namespace {

/// True under OFF. If OFF applies and there is no next definition, the caller's reference is weak
/// and would be null without us. The answer is then that of a machine without the library; the
/// guard loads nothing for it.
bool is_off() { return process().policy() == Policy::kOff; }

nvmlReturn_t unless_off(nvmlReturn_t answer) {
  return is_off() ? NVML_ERROR_LIBRARY_NOT_FOUND : answer;
}

nvmlReturn_t refused(const char* api, const void* caller) {
  const auto answer = static_cast<nvmlReturn_t>(nvml_refusal(api));
  return static_cast<nvmlReturn_t>(denied(process(), api, caller, unless_off(answer)));
}

nvmlReturn_t none(unsigned int* count) {
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *count = 0;
  return unless_off(NVML_SUCCESS);
}

/// Returns the null driver's function if there is no proxy. NVML's null driver is not loaded for
/// that, because our own functions answer as it does.
[[gnu::noinline]] NextDefinition or_null_driver(NextDefinition next, Library library,
                                                const char* name) {
  if (next.function != nullptr || is_off()) return next;
  const OwnLibrary ours =
      library == Library::kNvml ? loaded_null_driver(library) : null_driver(library);
  next.function = const_cast<void*>(ours.symbol(name));
  return next;
}

}  // namespace
}  // namespace cudaguard

using namespace cudaguard;  // NOLINT(google-build-using-namespace): only extern "C" below

/// Calls the next definition, if there is one. This is a tail call, so the proxy sees our caller.
#define CG_CALL(definition, name, ...)             \
  do {                                             \
    auto* const real = (definition).as(&::name);   \
    if (real != nullptr) return real(__VA_ARGS__); \
  } while (false)
#define CG_FORWARD(name, ...) CG_CALL(CG_NEXT(name), name, __VA_ARGS__)

#pragma GCC visibility push(default)
extern "C" {

CUresult cuInit(unsigned int flags) {
  Process& process = cudaguard::process();
  // FORCE_CPU comes first, because programs call cuInit in loops.
  if (process.policy() != Policy::kForceCpu) [[unlikely]] {
    CG_FORWARD(cuInit, flags);
    if (flags == 0 && allows_cuda(process.policy())) {
      return static_cast<CUresult>(no_driver(process, "cuInit", CG_CALLER));
    }
  }
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return static_cast<CUresult>(denied(process, "cuInit", CG_CALLER, CUDA_ERROR_NO_DEVICE));
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  CG_FORWARD(cuDeviceGet, device, ordinal);
  return CUDA_ERROR_NOT_INITIALIZED;
}

CUresult cuDeviceGetCount(int* count) {
  CG_FORWARD(cuDeviceGetCount, count);
  if (count != nullptr) *count = 0;  // as in the null driver: some callers ignore the result
  return CUDA_ERROR_NOT_INITIALIZED;
}

// The form of CUDA 11.3.
CUresult cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags) {
  CG_CALL(or_null_driver(CG_NEXT(cuGetProcAddress), Library::kDriver, "cuGetProcAddress"),
          cuGetProcAddress, symbol, function, version, flags);
  if (function != nullptr) *function = nullptr;
  return CUDA_ERROR_NO_DEVICE;
}

CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  CG_CALL(or_null_driver(CG_NEXT(cuGetProcAddress_v2), Library::kDriver, "cuGetProcAddress_v2"),
          cuGetProcAddress_v2, symbol, function, version, flags, status);
  if (function != nullptr) *function = nullptr;
  return CUDA_ERROR_NO_DEVICE;
}

/// Calls the next definition or the null driver, or answers as on a machine without a GPU.
#define CG_NVML(name, answer, parameters, ...)                                        \
  nvmlReturn_t name parameters {                                                      \
    CG_CALL(or_null_driver(CG_NEXT(name), Library::kNvml, #name), name, __VA_ARGS__); \
    return answer;                                                                    \
  }
CG_NVML(nvmlInit, refused("nvmlInit", CG_CALLER), (void))
CG_NVML(nvmlInit_v2, refused("nvmlInit_v2", CG_CALLER), (void))
CG_NVML(nvmlInitWithFlags, refused("nvmlInitWithFlags", CG_CALLER), (unsigned int flags), flags)
CG_NVML(nvmlShutdown, unless_off(NVML_SUCCESS), (void))
CG_NVML(nvmlDeviceGetCount, none(count), (unsigned int* count), count)
CG_NVML(nvmlDeviceGetCount_v2, none(count), (unsigned int* count), count)
// Our count needs our handles: without these functions a linked program would find the machine's
// first GPU as its first.
CG_NVML(nvmlDeviceGetHandleByIndex, NVML_ERROR_INVALID_ARGUMENT,
        (unsigned int index, nvmlDevice_t* device), index, device)
CG_NVML(nvmlDeviceGetHandleByIndex_v2, NVML_ERROR_INVALID_ARGUMENT,
        (unsigned int index, nvmlDevice_t* device), index, device)
CG_NVML(nvmlDeviceGetHandleByUUID, NVML_ERROR_NOT_FOUND, (const char* uuid, nvmlDevice_t* device),
        uuid, device)
CG_NVML(nvmlDeviceGetHandleBySerial, NVML_ERROR_NOT_FOUND,
        (const char* serial, nvmlDevice_t* device), serial, device)
CG_NVML(nvmlDeviceGetHandleByPciBusId, NVML_ERROR_NOT_FOUND, (const char* id, nvmlDevice_t* device),
        id, device)
CG_NVML(nvmlDeviceGetHandleByPciBusId_v2, NVML_ERROR_NOT_FOUND,
        (const char* id, nvmlDevice_t* device), id, device)
CG_NVML(nvmlDeviceGetIndex, NVML_ERROR_INVALID_ARGUMENT, (nvmlDevice_t device, unsigned int* index),
        device, index)
}
#pragma GCC visibility pop

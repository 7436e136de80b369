// SPDX-License-Identifier: Apache-2.0
// The names in front of the driver and NVML for programs that are *linked* to them: ld.so maps the
// real library before anyone can act, and it must stay uninitialised. No other of the driver's
// exports opens anything before cuInit (measured: design.md, "How FORCE_CPU closes the doors" 5).
#include <cuda.h>
#include <nvml.h>

#include "shim/guard/caller_scope.h"
#include "shim/guard/process.h"
#include "shim/guard/record.h"
#include "shim/guard/standins.h"

// cuda.h and nvml.h rename the old entry points to the newest ones; here each name is itself.
#undef cuGetProcAddress
#undef nvmlInit
#undef nvmlDeviceGetCount

namespace cudaguard {
namespace {

/// The function behind ours, with the type of `like`.
template <typename Function>
Function* behind(Function* /*like*/, const char* name, const void* caller) {
  return reinterpret_cast<Function*>(definition_for(name, caller));
}

bool off() { return process().config.policy == Policy::kOff; }

nvmlReturn_t no_gpu(const char* api, const void* caller) {
  record_touch(process(), api, nullptr, caller);
  return NVML_SUCCESS;
}

}  // namespace
}  // namespace cudaguard

using namespace cudaguard;  // NOLINT(google-build-using-namespace): only extern "C" below

#define CG_CALLER __builtin_return_address(0)
/// Under OFF: what the program would have called without us; `otherwise` if it has none.
#define CG_FORWARD(function, otherwise, ...)                    \
  do {                                                          \
    if (off()) {                                                \
      auto* real = behind(&::function, #function, CG_CALLER);   \
      return real != nullptr ? real(__VA_ARGS__) : (otherwise); \
    }                                                           \
  } while (false)

#pragma GCC visibility push(default)
extern "C" {

CUresult CUDAAPI cuInit(unsigned int flags) {
  CG_FORWARD(cuInit, CUDA_ERROR_NO_DEVICE, flags);
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  record_touch(process(), "cuInit", nullptr, CG_CALLER);
  return CUDA_ERROR_NO_DEVICE;
}

// The 4-argument form of CUDA 11.3; newer headers declare the other one only.
CUresult CUDAAPI cuGetProcAddress(const char* symbol, void** function, int version,
                                  cuuint64_t flags) {
  CG_FORWARD(cuGetProcAddress, CUDA_ERROR_NO_DEVICE, symbol, function, version, flags);
  const auto ask = reinterpret_cast<decltype(&::cuGetProcAddress)>(
      const_cast<void*>(standin(StandinKind::kDriver).symbol("cuGetProcAddress")));
  if (ask != nullptr) return ask(symbol, function, version, flags);
  if (function != nullptr) *function = nullptr;
  return CUDA_ERROR_NO_DEVICE;
}

CUresult CUDAAPI cuGetProcAddress_v2(const char* symbol, void** function, int version,
                                     cuuint64_t flags, CUdriverProcAddressQueryResult* status) {
  CG_FORWARD(cuGetProcAddress_v2, CUDA_ERROR_NO_DEVICE, symbol, function, version, flags, status);
  const auto ask = reinterpret_cast<decltype(&::cuGetProcAddress_v2)>(
      const_cast<void*>(standin(StandinKind::kDriver).symbol("cuGetProcAddress_v2")));
  if (ask != nullptr) return ask(symbol, function, version, flags, status);
  if (function != nullptr) *function = nullptr;
  return CUDA_ERROR_NO_DEVICE;
}

nvmlReturn_t DECLDIR nvmlInit(void) {
  CG_FORWARD(nvmlInit, NVML_ERROR_LIBRARY_NOT_FOUND);
  return no_gpu("nvmlInit", CG_CALLER);
}

nvmlReturn_t DECLDIR nvmlInit_v2(void) {
  CG_FORWARD(nvmlInit_v2, NVML_ERROR_LIBRARY_NOT_FOUND);
  return no_gpu("nvmlInit_v2", CG_CALLER);
}

nvmlReturn_t DECLDIR nvmlInitWithFlags(unsigned int flags) {
  CG_FORWARD(nvmlInitWithFlags, NVML_ERROR_LIBRARY_NOT_FOUND, flags);
  return no_gpu("nvmlInitWithFlags", CG_CALLER);
}

nvmlReturn_t DECLDIR nvmlShutdown(void) {
  CG_FORWARD(nvmlShutdown, NVML_ERROR_LIBRARY_NOT_FOUND);
  return NVML_SUCCESS;
}

nvmlReturn_t DECLDIR nvmlDeviceGetCount(unsigned int* count) {
  CG_FORWARD(nvmlDeviceGetCount, NVML_ERROR_LIBRARY_NOT_FOUND, count);
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *count = 0;
  return NVML_SUCCESS;
}

nvmlReturn_t DECLDIR nvmlDeviceGetCount_v2(unsigned int* count) {
  CG_FORWARD(nvmlDeviceGetCount_v2, NVML_ERROR_LIBRARY_NOT_FOUND, count);
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *count = 0;
  return NVML_SUCCESS;
}
}
#pragma GCC visibility pop

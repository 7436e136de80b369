// SPDX-License-Identifier: Apache-2.0
// The names in front of the driver and NVML for programs that are *linked* to them: ld.so maps the
// real library before anyone can act. Under FORCE_CPU it must stay uninitialised; no other of the
// driver's exports opens anything before cuInit (measured with 535: each one was called).
// Under VALIDATE and CLAMP these lead to the companions.
#include <cuda.h>
#include <nvml.h>

#include "shim/hook/standins.h"
#include "shim/record/record.h"
#include "shim/state/process.h"
#include "shim/through/companions.h"

// cuda.h and nvml.h rename the old entry points to the newest ones; here each name is itself.
#undef cuGetProcAddress
#undef nvmlInit
#undef nvmlDeviceGetCount
#undef nvmlDeviceGetHandleByIndex
#undef nvmlDeviceGetHandleByPciBusId

#if CUDA_VERSION < 12000  // the headers of CUDA 11 know the four-argument form only
enum CUdriverProcAddressQueryResult : int {};
extern "C" CUresult CUDAAPI cuGetProcAddress_v2(const char*, void**, int, cuuint64_t,
                                                CUdriverProcAddressQueryResult*);
#endif

namespace cudaguard {
namespace {

const void* in_companion(const char* name, const void* /*caller*/) {
  const auto kind = name[0] == 'n' ? CompanionKind::kNvml : CompanionKind::kDriver;
  return companion(process(), kind).symbol(name);
}

/// What is behind ours: the program's own definition under OFF, else the companion's. Null under
/// FORCE_CPU, and where there is none.
[[gnu::noinline]] void* find_behind(const char* name, const void* caller) {
  Process& here = process();
  const Policy policy = here.policy();
  if (policy == Policy::kForceCpu) return nullptr;
  return here.answers.find(name, caller, policy == Policy::kOff ? &definition_for : &in_companion);
}

/// OFF, and nothing behind ours: a weak reference, which without us is null. The answer is that of
/// a machine without the library; nothing is loaded for it.
bool is_off() { return process().policy() == Policy::kOff; }

/// The same; where there is none, the stand-in's.
[[gnu::noinline]] void* find_behind_or_standin(const char* name, const void* caller) {
  void* found = find_behind(name, caller);
  if (found != nullptr || is_off()) return found;
  return const_cast<void*>(standin(StandinKind::kDriver).symbol(name));
}

/// With the type of `like`.
template <typename Function>
[[gnu::always_inline]] inline Function* as(Function* /*like*/, void* found) {
  return reinterpret_cast<Function*>(found);
}

[[gnu::cold]] void touched(const char* api, const void* caller) {
  record_touch(process(), api, nullptr, caller);
}

[[gnu::noinline]] nvmlReturn_t unless_off(nvmlReturn_t answer) {
  return is_off() ? NVML_ERROR_LIBRARY_NOT_FOUND : answer;
}

nvmlReturn_t no_gpu(const char* api, const void* caller) {
  touched(api, caller);
  return unless_off(NVML_SUCCESS);
}

nvmlReturn_t none(unsigned int* count) {
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *count = 0;
  return unless_off(NVML_SUCCESS);
}

}  // namespace

}  // namespace cudaguard

using namespace cudaguard;  // NOLINT(google-build-using-namespace): only extern "C" below
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // by serial number

#define CG_CALLER __builtin_return_address(0)
/// Calls what is behind ours, if there is anything. A tail call: the companion sees our caller.
#define CG_CALL(find, function, ...)                          \
  do {                                                        \
    auto* real = as(&::function, find(#function, CG_CALLER)); \
    if (real != nullptr) return real(__VA_ARGS__);            \
  } while (false)
#define CG_FORWARD(...) CG_CALL(find_behind, __VA_ARGS__)

#pragma GCC visibility push(default)
extern "C" {

CUresult CUDAAPI cuInit(unsigned int flags) {
  Process& here = process();
  // FORCE_CPU first, because programs ask in loops.
  if (here.policy() != Policy::kForceCpu) [[unlikely]] {
    CG_FORWARD(cuInit, flags);
    if (flags == 0 && lets_through(here.policy())) record_no_driver(here, "cuInit", CG_CALLER);
  }
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  record_touch(here, "cuInit", nullptr, CG_CALLER);
  return CUDA_ERROR_NO_DEVICE;
}

CUresult CUDAAPI cuDeviceGet(CUdevice* device, int ordinal) {
  CG_FORWARD(cuDeviceGet, device, ordinal);
  return CUDA_ERROR_NOT_INITIALIZED;
}

// The 4-argument form of CUDA 11.3; newer headers declare the other one only.
CUresult CUDAAPI cuGetProcAddress(const char* symbol, void** function, int version,
                                  cuuint64_t flags) {
  CG_CALL(find_behind_or_standin, cuGetProcAddress, symbol, function, version, flags);
  if (function != nullptr) *function = nullptr;
  return CUDA_ERROR_NO_DEVICE;
}

CUresult CUDAAPI cuGetProcAddress_v2(const char* symbol, void** function, int version,
                                     cuuint64_t flags, CUdriverProcAddressQueryResult* status) {
  CG_CALL(find_behind_or_standin, cuGetProcAddress_v2, symbol, function, version, flags, status);
  if (function != nullptr) *function = nullptr;
  return CUDA_ERROR_NO_DEVICE;
}

nvmlReturn_t DECLDIR nvmlInit(void) {
  CG_FORWARD(nvmlInit);
  return no_gpu("nvmlInit", CG_CALLER);
}

nvmlReturn_t DECLDIR nvmlInit_v2(void) {
  CG_FORWARD(nvmlInit_v2);
  return no_gpu("nvmlInit_v2", CG_CALLER);
}

nvmlReturn_t DECLDIR nvmlInitWithFlags(unsigned int flags) {
  CG_FORWARD(nvmlInitWithFlags, flags);
  return no_gpu("nvmlInitWithFlags", CG_CALLER);
}

nvmlReturn_t DECLDIR nvmlShutdown(void) {
  CG_FORWARD(nvmlShutdown);
  return unless_off(NVML_SUCCESS);
}

nvmlReturn_t DECLDIR nvmlDeviceGetCount(unsigned int* count) {
  CG_FORWARD(nvmlDeviceGetCount, count);
  return none(count);
}

nvmlReturn_t DECLDIR nvmlDeviceGetCount_v2(unsigned int* count) {
  CG_FORWARD(nvmlDeviceGetCount_v2, count);
  return none(count);
}

// A count that is ours needs handles that are ours: without these a linked program would find the
// machine's first GPU as its first.
nvmlReturn_t DECLDIR nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t* device) {
  CG_FORWARD(nvmlDeviceGetHandleByIndex, index, device);
  return NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t DECLDIR nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t* device) {
  CG_FORWARD(nvmlDeviceGetHandleByIndex_v2, index, device);
  return NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t DECLDIR nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* device) {
  CG_FORWARD(nvmlDeviceGetHandleByUUID, uuid, device);
  return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t DECLDIR nvmlDeviceGetHandleBySerial(const char* serial, nvmlDevice_t* device) {
  CG_FORWARD(nvmlDeviceGetHandleBySerial, serial, device);
  return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t DECLDIR nvmlDeviceGetHandleByPciBusId(const char* id, nvmlDevice_t* device) {
  CG_FORWARD(nvmlDeviceGetHandleByPciBusId, id, device);
  return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t DECLDIR nvmlDeviceGetHandleByPciBusId_v2(const char* id, nvmlDevice_t* device) {
  CG_FORWARD(nvmlDeviceGetHandleByPciBusId_v2, id, device);
  return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t DECLDIR nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int* index) {
  CG_FORWARD(nvmlDeviceGetIndex, device, index);
  return NVML_ERROR_INVALID_ARGUMENT;
}
}
#pragma GCC visibility pop

// SPDX-License-Identifier: Apache-2.0
//
// The NVML entries with behaviour: a library that works on a machine without a GPU. The other
// names of the API are in entries.S.
#define NVML_NO_UNVERSIONED_FUNC_DEFS  // nvmlInit means nvmlInit, not nvmlInit_v2
#include <nvml.h>

#include "shim/standin/export.h"
#include "shim/standin/touch.h"
#define CG_ERROR_LIST "nvml_errors.inc"
#include "shim/standin/error_table.inc"

// Exported by the real library and older than its header, or in no header at all.
extern "C" {
nvmlReturn_t nvmlGetBlacklistDeviceCount(unsigned int* count);
nvmlReturn_t nvmlInternalGetExportTable(const void** table, const void* id);
#ifndef nvmlUUID_v1  // before CUDA 12.9
nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const void* uuid, nvmlDevice_t* device);
using nvmlUUID_t = void;
#endif
}

namespace {

constexpr int kDriverVersion = 99990;  // the same as the driver stand-in's

[[gnu::always_inline]] inline nvmlReturn_t initialised(const char* api, const void* caller) {
  cudaguard::touch(api, caller);
  return cudaguard::roomy(NVML_SUCCESS);
}

[[gnu::always_inline]] inline nvmlReturn_t put(unsigned int* out, unsigned int value) {
  if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *out = value;
  return cudaguard::roomy(NVML_SUCCESS);
}

[[gnu::always_inline]] inline nvmlReturn_t put_version(int* out) {
  if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *out = kDriverVersion;
  return cudaguard::roomy(NVML_SUCCESS);
}

[[gnu::always_inline]] inline nvmlReturn_t no_such_index() {
  return cudaguard::roomy(NVML_ERROR_INVALID_ARGUMENT);
}

[[gnu::always_inline]] inline nvmlReturn_t not_found() {
  return cudaguard::roomy(NVML_ERROR_NOT_FOUND);
}

}  // namespace

CG_EXPORT nvmlReturn_t nvmlInit() { return initialised("nvmlInit", __builtin_return_address(0)); }

CG_EXPORT nvmlReturn_t nvmlInit_v2() {
  return initialised("nvmlInit_v2", __builtin_return_address(0));
}

CG_EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int) {
  return initialised("nvmlInitWithFlags", __builtin_return_address(0));
}

CG_EXPORT nvmlReturn_t nvmlShutdown() { return cudaguard::roomy(NVML_SUCCESS); }

CG_EXPORT const char* nvmlErrorString(nvmlReturn_t code) {
  const cudaguard::ErrorRow* row = cudaguard::find_error(static_cast<int>(code));
  if (row == nullptr) row = cudaguard::find_error(NVML_ERROR_UNKNOWN);
  return cudaguard::error_string(row->text);
}

CG_EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned int* count) { return put(count, 0); }
CG_EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int* count) { return put(count, 0); }
CG_EXPORT nvmlReturn_t nvmlUnitGetCount(unsigned int* count) { return put(count, 0); }
CG_EXPORT nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned int* count) { return put(count, 0); }
CG_EXPORT nvmlReturn_t nvmlGetBlacklistDeviceCount(unsigned int* count) { return put(count, 0); }

CG_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int, nvmlDevice_t*) {
  return no_such_index();
}
CG_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int, nvmlDevice_t*) {
  return no_such_index();
}
CG_EXPORT nvmlReturn_t nvmlUnitGetHandleByIndex(unsigned int, nvmlUnit_t*) {
  return no_such_index();
}
CG_EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char*, nvmlDevice_t*) { return not_found(); }
CG_EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const nvmlUUID_t*, nvmlDevice_t*) {
  return not_found();
}
CG_EXPORT nvmlReturn_t nvmlDeviceGetHandleBySerial(const char*, nvmlDevice_t*) {
  return not_found();
}
CG_EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char*, nvmlDevice_t*) {
  return not_found();
}
CG_EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char*, nvmlDevice_t*) {
  return not_found();
}

CG_EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int* version) { return put_version(version); }
CG_EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int* version) {
  return put_version(version);
}

// Success without a table: nvidia-smi takes any error for a wrong library version.
CG_EXPORT nvmlReturn_t nvmlInternalGetExportTable(const void** table, const void*) {
  if (table != nullptr) *table = nullptr;
  return cudaguard::roomy(NVML_SUCCESS);
}

CG_CLAIM()

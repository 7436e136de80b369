// SPDX-License-Identifier: Apache-2.0
//
// The NVML functions that do more than return an error. They answer like NVML on a machine whose
// driver is not loaded, or like NVML without a GPU after an nvmlInit that succeeds (nvml_refusal).
// The other names of the API are in entries.S.
#include <poll.h>

#include <atomic>
#include <cstring>
#include <string_view>

#include "policy/driver_api.h"
#include "shim/api/cuda.h"
#include "shim/null_driver/export.h"
#include "shim/null_driver/report_attempt.h"
#define CG_ERROR_LIST "nvml_errors.inc"
#include "shim/null_driver/error_table.inc"

namespace {

// The version of the CUDA null driver, and the matching versions in NVIDIA's form for tools that
// parse the numbers.
constexpr int kCudaVersion = 99990;
constexpr std::string_view kDriverVersion = "999.90";
constexpr std::string_view kNvmlVersion = "99.999.90";

// The calls of nvmlInit that no nvmlShutdown has ended. Not in .bss, which would cost a mapping.
[[gnu::section(".data")]] constinit std::atomic<unsigned int> users{0};

bool is_initialised() { return users.load(std::memory_order_relaxed) != 0; }

/// Returns the answer, or the one of NVML before nvmlInit.
[[gnu::always_inline]] inline nvmlReturn_t after_init(nvmlReturn_t answer) {
  return cudaguard::roomy(is_initialised() ? answer : NVML_ERROR_UNINITIALIZED);
}

[[gnu::always_inline]] inline nvmlReturn_t refused(const char* api, const void* caller) {
  const auto answer = static_cast<nvmlReturn_t>(cudaguard::nvml_refusal(api));
  if (answer == NVML_SUCCESS) users.fetch_add(1, std::memory_order_relaxed);
  cudaguard::report_attempt(api, caller);
  return cudaguard::roomy(answer);
}

[[gnu::always_inline]] inline nvmlReturn_t put(unsigned int* out, unsigned int value) {
  if (!is_initialised()) return NVML_ERROR_UNINITIALIZED;
  if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *out = value;
  return cudaguard::roomy(NVML_SUCCESS);
}

[[gnu::always_inline]] inline nvmlReturn_t put_version(int* out) {
  if (!is_initialised()) return NVML_ERROR_UNINITIALIZED;
  if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *out = kCudaVersion;
  return cudaguard::roomy(NVML_SUCCESS);
}

nvmlReturn_t put_text(char* out, unsigned int size, std::string_view text) {
  if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (size <= text.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
  memcpy(out, text.data(), text.size());
  out[text.size()] = '\0';
  return NVML_SUCCESS;
}

[[gnu::always_inline]] inline nvmlReturn_t no_such_index() {
  return after_init(NVML_ERROR_INVALID_ARGUMENT);
}

[[gnu::always_inline]] inline nvmlReturn_t not_found() { return after_init(NVML_ERROR_NOT_FOUND); }

}  // namespace

CG_EXPORT nvmlReturn_t nvmlInit() { return refused("nvmlInit", __builtin_return_address(0)); }

CG_EXPORT nvmlReturn_t nvmlInit_v2() { return refused("nvmlInit_v2", __builtin_return_address(0)); }

CG_EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int) {
  return refused("nvmlInitWithFlags", __builtin_return_address(0));
}

// NVML succeeds here even before nvmlInit.
CG_EXPORT nvmlReturn_t nvmlShutdown() {
  unsigned int left = users.load(std::memory_order_relaxed);
  while (left != 0 && !users.compare_exchange_weak(left, left - 1, std::memory_order_relaxed)) {
  }
  return NVML_SUCCESS;
}

CG_EXPORT const char* nvmlErrorString(nvmlReturn_t code) {
  const char* text = cudaguard::find_error(static_cast<int>(code)).text;
  return text != nullptr ? text : cudaguard::find_error(NVML_ERROR_UNKNOWN).text;
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

CG_EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char* version, unsigned int size) {
  if (!is_initialised()) return NVML_ERROR_UNINITIALIZED;
  return cudaguard::roomy(put_text(version, size, kDriverVersion));
}
// NVML needs no nvmlInit for its own version.
CG_EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char* version, unsigned int size) {
  return cudaguard::roomy(put_text(version, size, kNvmlVersion));
}
// Callers get the process numbers from a GPU, so without a GPU no number is valid.
CG_EXPORT nvmlReturn_t nvmlSystemGetProcessName(unsigned int, char*, unsigned int) {
  return not_found();
}
CG_EXPORT nvmlReturn_t nvmlSystemGetHicVersion(unsigned int* count, nvmlHwbcEntry_t*) {
  return put(count, 0);
}
CG_EXPORT nvmlReturn_t nvmlSystemGetTopologyGpuSet(unsigned int, unsigned int* count,
                                                   nvmlDevice_t*) {
  return put(count, 0);
}

// No GPU can be added to this set, so it has no events. The wait sleeps, as loops expect it to.
CG_EXPORT nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t* set) {
  static constexpr char kOne = 0;
  if (!is_initialised()) return NVML_ERROR_UNINITIALIZED;
  if (set == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *set = reinterpret_cast<nvmlEventSet_t>(const_cast<char*>(&kOne));
  return cudaguard::roomy(NVML_SUCCESS);
}
CG_EXPORT nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t, nvmlEventData_t*, unsigned int ms) {
  if (!is_initialised()) return NVML_ERROR_UNINITIALIZED;
  poll(nullptr, 0, static_cast<int>(ms));
  return NVML_ERROR_TIMEOUT;
}
CG_EXPORT nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t, nvmlEventData_t*, unsigned int ms) {
  if (!is_initialised()) return NVML_ERROR_UNINITIALIZED;
  poll(nullptr, 0, static_cast<int>(ms));
  return NVML_ERROR_TIMEOUT;
}
CG_EXPORT nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t) { return after_init(NVML_SUCCESS); }

// Succeeds without a table, because nvidia-smi takes any error for a wrong library version. As with
// cuGetExportTable, a program may ask by it alone.
CG_EXPORT nvmlReturn_t nvmlInternalGetExportTable(const void** table, const void*) {
  if (table != nullptr) *table = nullptr;
  if (!is_initialised()) {
    cudaguard::report_attempt("nvmlInternalGetExportTable", __builtin_return_address(0));
  }
  return cudaguard::roomy(NVML_SUCCESS);
}

CG_CLAIM()

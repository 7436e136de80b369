// SPDX-License-Identifier: Apache-2.0
//
// The driver functions that do more than return an error. They answer like NVIDIA's driver on a
// machine without a GPU. The other names of the API are in entries.S.
#include <cstddef>
#include <cstdint>

#include "shim/api/cuda.h"
#include "shim/null_driver/export.h"
#include "shim/null_driver/export_tables.h"
#include "shim/null_driver/proc_address.h"
#include "shim/null_driver/report_attempt.h"
#define CG_ERROR_LIST "driver_errors.inc"
#include "shim/null_driver/error_table.inc"

namespace {

// The version is newer than every runtime, because a runtime that is newer than the driver answers
// "driver too old" (35).
constexpr int kDriverVersion = 99990;
constexpr cuuint64_t kKnownFlags =
    CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

cudaguard::LookupAnswer look_up(const char* symbol, int version, cuuint64_t flags) {
  return cudaguard::find_entry(symbol, static_cast<uint32_t>(version),
                               (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0);
}

}  // namespace

CG_EXPORT CUresult cuInit(unsigned int flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  cudaguard::report_attempt("cuInit", __builtin_return_address(0));
  return CUDA_ERROR_NO_DEVICE;
}

CG_EXPORT CUresult cuDriverGetVersion(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = kDriverVersion;
  return cudaguard::roomy(CUDA_SUCCESS);
}

// The real driver does not write the count. We write 0, because Open MPI ignores the result.
CG_EXPORT CUresult cuDeviceGetCount(int* count) {
  if (count != nullptr) *count = 0;
  return cudaguard::roomy(CUDA_ERROR_NOT_INITIALIZED);
}

CG_EXPORT CUresult cuGetErrorName(CUresult error, const char** name) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = cudaguard::find_error(static_cast<int>(error)).name;
  return *name != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CG_EXPORT CUresult cuGetErrorString(CUresult error, const char** text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *text = cudaguard::find_error(static_cast<int>(error)).text;
  return *text != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// NVIDIA's programs initialise the driver by these tables, without cuInit. So a request for one is
// an attempt, unless it is the one with which each CUDA runtime begins: it calls cuInit if the
// program asks for a GPU. The attempt counts at once, because the process may be killed before its
// end. CUPTI and JAX take only 500 as "no driver". After 3, CUPTI reports an error that it cannot
// name. Success without a table leads to a crash.
CG_EXPORT CUresult cuGetExportTable(const void** table, const CUuuid* id) {
  if (table == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *table = nullptr;
  if (cudaguard::is_table(id, cudaguard::kOfRuntime)) return CUDA_ERROR_NOT_FOUND;
  cudaguard::report_attempt("cuGetExportTable", __builtin_return_address(0));
  if (!cudaguard::is_table(id, cudaguard::kOfMpsServer)) return CUDA_ERROR_NOT_FOUND;
  *table = cudaguard::mps_table();
  return CUDA_SUCCESS;
}

// The variant of CUDA 11.3 has no status. For a missing name it returns 500 and writes no output.
CG_EXPORT CUresult cuGetProcAddress(const char* symbol, void** entry, int version,
                                    cuuint64_t flags) {
  if (flags > kKnownFlags || symbol == nullptr || entry == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const cudaguard::LookupAnswer answer = look_up(symbol, version, flags);
  if (answer.status != cudaguard::Lookup::kFound) return CUDA_ERROR_NOT_FOUND;
  *entry = answer.entry;
  return CUDA_SUCCESS;
}

CG_EXPORT CUresult cuGetProcAddress_v2(const char* symbol, void** entry, int version,
                                       cuuint64_t flags, CUdriverProcAddressQueryResult* status) {
  if (flags > kKnownFlags || symbol == nullptr || entry == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const cudaguard::LookupAnswer answer = look_up(symbol, version, flags);
  *entry = answer.entry;
  if (status != nullptr) {
    switch (answer.status) {
      case cudaguard::Lookup::kFound:
        *status = CU_GET_PROC_ADDRESS_SUCCESS;
        break;
      case cudaguard::Lookup::kUnknownName:
        *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        break;
      case cudaguard::Lookup::kVersionTooLow:
        *status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
        break;
    }
  }
  return CUDA_SUCCESS;
}

// The driver's log stays empty: no callback is ever called, no file is made, and every iterator is
// at the end. The contract is that of cuda.h, which names no other error.

CG_EXPORT CUresult cuLogsRegisterCallback(CUlogsCallback function, void*,
                                          CUlogsCallbackHandle* handle) {
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (handle != nullptr) *handle = reinterpret_cast<CUlogsCallbackHandle>(uintptr_t{1});
  return CUDA_SUCCESS;
}

CG_EXPORT CUresult cuLogsUnregisterCallback(CUlogsCallbackHandle handle) {
  return cudaguard::roomy(handle != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CG_EXPORT CUresult cuLogsCurrent(CUlogIterator* iterator, unsigned int flags) {
  if (iterator == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *iterator = 0;
  return cudaguard::roomy(CUDA_SUCCESS);
}

CG_EXPORT CUresult cuLogsDumpToFile(CUlogIterator*, const char* path, unsigned int flags) {
  return cudaguard::roomy(path != nullptr && flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CG_EXPORT CUresult cuLogsDumpToMemory(CUlogIterator*, char* buffer, size_t* size,
                                      unsigned int flags) {
  if (buffer == nullptr || size == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (*size != 0) *buffer = '\0';
  *size = 0;
  return CUDA_SUCCESS;
}

CG_CLAIM()

CG_OWN_NAME(cuInit);
CG_OWN_NAME(cuDriverGetVersion);
CG_OWN_NAME(cuDeviceGetCount);
CG_OWN_NAME(cuGetErrorName);
CG_OWN_NAME(cuGetErrorString);
CG_OWN_NAME(cuGetExportTable);
CG_OWN_NAME(cuGetProcAddress);
CG_OWN_NAME(cuGetProcAddress_v2);
CG_OWN_NAME(cuLogsRegisterCallback);
CG_OWN_NAME(cuLogsUnregisterCallback);
CG_OWN_NAME(cuLogsCurrent);
CG_OWN_NAME(cuLogsDumpToFile);
CG_OWN_NAME(cuLogsDumpToMemory);

// SPDX-License-Identifier: Apache-2.0
//
// The driver entries with behaviour: what NVIDIA's driver says on a machine without a GPU. The
// other names of the API are in entries.S.
#define __CUDA_API_VERSION_INTERNAL  // also declare what newer versions of a name hide
#include <cuda.h>

#include <cstdint>

#include "shim/null_driver/export.h"
#include "shim/null_driver/proc_address.h"
#include "shim/null_driver/touch.h"
#define CG_ERROR_LIST "driver_errors.inc"
#include "shim/null_driver/error_table.inc"

#if CUDA_VERSION < 12000  // the headers of CUDA 11 know the four-argument form only
enum CUdriverProcAddressQueryResult {
  CU_GET_PROC_ADDRESS_SUCCESS = 0,
  CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND = 1,
  CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT = 2
};
extern "C" CUresult CUDAAPI cuGetProcAddress_v2(const char*, void**, int, cuuint64_t,
                                                CUdriverProcAddressQueryResult*);
#endif

namespace {

// Newer than every runtime: a lower version than the program's runtime turns its answer into
// "driver too old" (35).
constexpr int kDriverVersion = 99990;
constexpr cuuint64_t kKnownFlags =
    CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

cudaguard::LookupAnswer look_up(const char* symbol, int version, cuuint64_t flags) {
  return cudaguard::find_entry(symbol, static_cast<uint32_t>(version),
                               (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0);
}

}  // namespace

CG_EXPORT CUresult CUDAAPI cuInit(unsigned int flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  cudaguard::touch("cuInit", __builtin_return_address(0));
  return CUDA_ERROR_NO_DEVICE;
}

CG_EXPORT CUresult CUDAAPI cuDriverGetVersion(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = kDriverVersion;
  return cudaguard::roomy(CUDA_SUCCESS);
}

// The real one leaves the count alone; Open MPI does not look at the result.
CG_EXPORT CUresult CUDAAPI cuDeviceGetCount(int* count) {
  if (count != nullptr) *count = 0;
  return cudaguard::roomy(CUDA_ERROR_NOT_INITIALIZED);
}

CG_EXPORT CUresult CUDAAPI cuGetErrorName(CUresult error, const char** name) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = cudaguard::find_error(static_cast<int>(error)).name;
  return *name != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CG_EXPORT CUresult CUDAAPI cuGetErrorString(CUresult error, const char** text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *text = cudaguard::find_error(static_cast<int>(error)).text;
  return *text != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// 500 is the one answer that CUPTI and JAX take as "no driver": 3 makes CUPTI report an error that
// it cannot name, and success without a table crashes.
CG_EXPORT CUresult CUDAAPI cuGetExportTable(const void** table, const CUuuid*) {
  if (table != nullptr) *table = nullptr;
  return cudaguard::roomy(CUDA_ERROR_NOT_FOUND);
}

// The form of CUDA 11.3 cannot say why; its answer for any miss is 500, the output left alone.
CG_EXPORT CUresult CUDAAPI cuGetProcAddress(const char* symbol, void** entry, int version,
                                            cuuint64_t flags) {
  if (flags > kKnownFlags || symbol == nullptr || entry == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const cudaguard::LookupAnswer answer = look_up(symbol, version, flags);
  if (answer.status != cudaguard::Lookup::kFound) return CUDA_ERROR_NOT_FOUND;
  *entry = answer.entry;
  return CUDA_SUCCESS;
}

CG_EXPORT CUresult CUDAAPI cuGetProcAddress_v2(const char* symbol, void** entry, int version,
                                               cuuint64_t flags,
                                               CUdriverProcAddressQueryResult* status) {
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

CG_CLAIM()

CG_OWN_NAME(cuInit);
CG_OWN_NAME(cuDriverGetVersion);
CG_OWN_NAME(cuDeviceGetCount);
CG_OWN_NAME(cuGetErrorName);
CG_OWN_NAME(cuGetErrorString);
CG_OWN_NAME(cuGetExportTable);
CG_OWN_NAME(cuGetProcAddress);
CG_OWN_NAME(cuGetProcAddress_v2);

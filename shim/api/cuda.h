// SPDX-License-Identifier: Apache-2.0
// What the guard uses of the interfaces of the driver, the runtime and NVML, so that a build needs
// none of NVIDIA's headers. tests/artefacts/test_declarations.py compiles the same code with them.
#pragma once

#include <cstddef>
#include <cstdint>

// NOLINTBEGIN(readability-identifier-naming): NVIDIA's names
// --- the driver ---
#define CG_ERROR(code, name, text) name = (code),
enum cudaError_enum {
#include "shim/api/generated/driver_errors.inc"
};
using CUresult = cudaError_enum;
using CUdevice = int;
using cuuint64_t = uint64_t;
using CUuuid = struct CUuuid_st;

enum { CU_GET_PROC_ADDRESS_LEGACY_STREAM = 1, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM = 2 };
enum CUdriverProcAddressQueryResult_enum {
  CU_GET_PROC_ADDRESS_SUCCESS = 0,
  CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND = 1,
  CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT = 2
};
using CUdriverProcAddressQueryResult = CUdriverProcAddressQueryResult_enum;

enum CUlogLevel_enum { CU_LOG_LEVEL_ERROR = 0 };
using CUlogLevel = CUlogLevel_enum;
using CUlogsCallbackHandle = struct CUlogsCallbackEntry_st*;
using CUlogsCallback = void (*)(void* data, CUlogLevel level, char* message, size_t length);
using CUlogIterator = unsigned;

// --- the runtime ---
enum cudaError { cudaSuccess = 0, cudaErrorNoDevice = 100, cudaErrorInvalidDevice = 101 };
using cudaError_t = cudaError;
enum cudaDeviceAttr {};
struct cudaDeviceProp;

// --- NVML ---
enum nvmlReturn_enum {
#include "shim/api/generated/nvml_errors.inc"
};
#undef CG_ERROR
using nvmlReturn_t = nvmlReturn_enum;
enum nvmlGpuTopologyLevel_t {};
enum nvmlComputeMode_t { NVML_COMPUTEMODE_PROHIBITED = 2 };
using nvmlDevice_t = struct nvmlDevice_st*;
using nvmlUnit_t = struct nvmlUnit_st*;
using nvmlEventSet_t = struct nvmlEventSet_st*;
struct nvmlEventData_t;
struct nvmlHwbcEntry_t;
struct nvmlUUID_t;

extern "C" nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned* index);
// NOLINTEND(readability-identifier-naming)

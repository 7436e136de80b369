// SPDX-License-Identifier: Apache-2.0
// A recording libcuda.so.1 with one device: every call appends its name to $CG_FAKE_LOG.
// Plain C without NVIDIA's headers, so that it builds for any architecture.
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_log.h"

enum { kSuccess = 0, kInvalidValue = 1, kNotFound = 500, kUnknown = 999, kVersion = 13020 };

typedef void (*any_function)(void);

// All names but those written out below: 999. What is there is enough for a program that copies
// memory by the driver API, and no more.
#define OTHER(name)      \
  int name(void);        \
  int name(void) {       \
    fake_log("", #name); \
    return kUnknown;     \
  }
#include "fake_cuda_names.h"
#undef OTHER

int cuInit(unsigned flags) {
  fake_log("", "cuInit");
  return flags == 0 ? kSuccess : kInvalidValue;
}

int cuDriverGetVersion(int* version) {
  fake_log("", "cuDriverGetVersion");
  *version = kVersion;
  return kSuccess;
}

int cuDeviceGetCount(int* count) {
  fake_log("", "cuDeviceGetCount");
  *count = 1;
  return kSuccess;
}

int cuDeviceGet(int* device, int ordinal) {
  fake_log("", "cuDeviceGet");
  *device = ordinal;
  return ordinal == 0 ? kSuccess : 101;
}

int cuDeviceGetName(char* name, int size, int device) {
  (void)device;
  fake_log("", "cuDeviceGetName");
  snprintf(name, (size_t)size, "%s", "Recording fake");
  return kSuccess;
}

int cuDeviceTotalMem(size_t* bytes, int device) {
  (void)device;
  fake_log("", "cuDeviceTotalMem");
  *bytes = 1U << 30;
  return kSuccess;
}

int cuDeviceTotalMem_v2(size_t* bytes, int device) {
  (void)device;
  fake_log("", "cuDeviceTotalMem_v2");
  *bytes = 1U << 30;
  return kSuccess;
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  (void)attribute;
  (void)device;
  fake_log("", "cuDeviceGetAttribute");
  *value = 1;
  return kSuccess;
}

int cuDeviceGetUuid(void* uuid, int device) {
  (void)device;
  fake_log("", "cuDeviceGetUuid");
  memset(uuid, 0x42, 16);
  return kSuccess;
}

int cuDeviceGetUuid_v2(void* uuid, int device) {
  (void)device;
  fake_log("", "cuDeviceGetUuid_v2");
  memset(uuid, 0x42, 16);
  return kSuccess;
}

int cuGetErrorName(int error, const char** text) {
  (void)error;
  fake_log("", "cuGetErrorName");
  *text = "CUDA_ERROR_FAKE";
  return kSuccess;
}

int cuGetErrorString(int error, const char** text) {
  (void)error;
  fake_log("", "cuGetErrorString");
  *text = "an answer of the recording fake driver";
  return kSuccess;
}

int cuGetExportTable(const void** table, const void* uuid) {
  (void)uuid;
  fake_log("", "cuGetExportTable");
  *table = NULL;
  return kNotFound;
}

int cuCtxGetCurrent(void** context) {
  fake_log("", "cuCtxGetCurrent");
  *context = NULL;
  return kSuccess;
}

int cuCtxSetCurrent(void* context) {
  (void)context;
  fake_log("", "cuCtxSetCurrent");
  return kSuccess;
}

int cuDevicePrimaryCtxRetain(void** context, int device) {
  static char the_only;
  fake_log("", "cuDevicePrimaryCtxRetain");
  *context = &the_only;
  return device == 0 ? kSuccess : 101;
}

int cuMemAlloc_v2(uint64_t* address, size_t size) {
  fake_log("", "cuMemAlloc_v2");
  void* memory = malloc(size);
  *address = (uint64_t)(uintptr_t)memory;
  return memory == NULL ? 2 : kSuccess;
}

int cuMemFree_v2(uint64_t address) {
  fake_log("", "cuMemFree_v2");
  free((void*)(uintptr_t)address);
  return kSuccess;
}

int cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t size) {
  fake_log("", "cuMemcpyHtoD_v2");
  memcpy((void*)(uintptr_t)to, from, size);
  return kSuccess;
}

int cuMemcpyDtoH_v2(void* to, uint64_t from, size_t size) {
  fake_log("", "cuMemcpyDtoH_v2");
  memcpy(to, (const void*)(uintptr_t)from, size);
  return kSuccess;
}

int cuGetProcAddress(const char* name, void** function, int version, uint64_t flags);
int cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags,
                        int* status);

struct entry {
  const char* name;
  int version;
  any_function function;
};

static const struct entry kNames[] = {
#define NAME(name, version) {#name, version, (any_function)name},
#include "fake_cuda_names.h"
#undef NAME
};

static const struct entry* find(const char* name) {
  size_t low = 0;
  size_t high = sizeof kNames / sizeof *kNames;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    const int order = strcmp(name, kNames[middle].name);
    if (order == 0) return &kNames[middle];
    if (order < 0) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return NULL;
}

// NVIDIA's rules: of NAME, NAME_v2, ... the newest that the asked version has.
static int look_up(const char* name, void** function, int version, int* status) {
  const struct entry* best = NULL;
  int known = 0;
  for (int suffix = 1; suffix <= 4; ++suffix) {
    char full[160];
    snprintf(full, sizeof full, suffix == 1 ? "%s" : "%s_v%d", name, suffix);
    const struct entry* found = find(full);
    if (found == NULL) continue;
    known = 1;
    if (found->version <= version && (best == NULL || found->version >= best->version)) {
      best = found;
    }
  }
  // Its own name is the one case where a wrong choice would corrupt the caller's stack.
  if (strcmp(name, "cuGetProcAddress") == 0) {
    best = find(version >= 12000 ? "cuGetProcAddress_v2" : "cuGetProcAddress");
  }
  *function = best == NULL ? NULL : (void*)best->function;
  if (status != NULL) *status = best != NULL ? 0 : known ? 2 : 1;
  return kSuccess;
}

int cuGetProcAddress(const char* name, void** function, int version, uint64_t flags) {
  (void)flags;
  fake_log("cuGetProcAddress:", name);
  int status = 0;
  look_up(name, function, version, &status);
  return status == 0 ? kSuccess : kNotFound;
}

int cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags,
                        int* status) {
  (void)flags;
  fake_log("cuGetProcAddress:", name);
  return look_up(name, function, version, status);
}

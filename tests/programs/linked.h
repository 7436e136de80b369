// SPDX-License-Identifier: Apache-2.0
// Finds entries in the linker's own tables, because the caller is linked to the driver.
#ifndef CUDAGUARD_TESTS_PROGRAMS_LINKED_H
#define CUDAGUARD_TESTS_PROGRAMS_LINKED_H

#include <string.h>

#include "probe.h"

int cuInit(unsigned flags);
int cuDriverGetVersion(int* version);
int cuDeviceGetCount(int* count);
int cuGetErrorName(int error, const char** text);
int cuGetExportTable(const void** table, const void* uuid);
int cuGetProcAddress(const char* name, void** function, int version, uint64_t flags);
int cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags,
                        int* status);

int nvmlInit(void);
int nvmlInit_v2(void);
int nvmlInitWithFlags(unsigned flags);
int nvmlShutdown(void);
int nvmlDeviceGetCount(unsigned* count);
int nvmlDeviceGetCount_v2(unsigned* count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device);
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device);
const char* nvmlErrorString(int error);

struct linked_entry {
  const char* name;
  void* function;
};

#define LINKED(name) \
  { #name, (void*)name }

__attribute__((unused)) static void* find_linked(void* context, const char* name) {
  for (const struct linked_entry* entry = context; entry->name != NULL; ++entry) {
    if (strcmp(entry->name, name) == 0) return entry->function;
  }
  return NULL;
}

#endif

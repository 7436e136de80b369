// SPDX-License-Identifier: Apache-2.0
// Finds entries in the linker's own tables, because the caller is linked to the driver.
#ifndef CUDAGUARD_TESTS_PROGRAMS_LINKED_H
#define CUDAGUARD_TESTS_PROGRAMS_LINKED_H

#include <dlfcn.h>
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

__attribute__((unused)) static void* find_by_dlsym(void* context, const char* name) {
  return dlsym(context, name);
}

// Probes what dlopen, dlsym(RTLD_DEFAULT) and the like find. Returns 0 if the way is none of these.
__attribute__((unused)) static int probe_found(const char* way, const char* soname,
                                               void (*probe)(int, probe_finder, void*)) {
  char devname[32];
  snprintf(devname, sizeof devname, "%s", soname);
  *strstr(devname, ".1") = '\0';
  void* handle = RTLD_DEFAULT;
  if (strcmp(way, "dlopen") == 0 || strcmp(way, "devname") == 0) {
    handle = dlopen(way[1] == 'l' ? soname : devname, RTLD_NOW);
    if (handle == NULL) {
      probe_print(1, "open=null error=%s\n", dlerror());
      return 1;
    }
  } else if (strcmp(way, "next") == 0) {
    handle = RTLD_NEXT;
  } else if (strcmp(way, "self") == 0) {
    handle = dlopen(NULL, RTLD_NOW);
  } else if (strcmp(way, "default") != 0) {
    return 0;
  }
  probe(1, find_by_dlsym, handle);
  return 1;
}

#endif

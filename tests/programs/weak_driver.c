// SPDX-License-Identifier: Apache-2.0
// A program that uses the driver and NVML if they are loaded, and is linked to neither. It then
// loads both and prints which of the guard's files are mapped.
#include <dlfcn.h>
#include <link.h>

#include "probe.h"

__attribute__((weak)) int cuInit(unsigned flags);
__attribute__((weak)) int cuDeviceGet(int* device, int ordinal);
__attribute__((weak)) int cuGetProcAddress(const char* name, void** function, int version,
                                           uint64_t flags);
__attribute__((weak)) int cuGetProcAddress_v2(const char* name, void** function, int version,
                                              uint64_t flags, int* status);
__attribute__((weak)) int nvmlInit(void);
__attribute__((weak)) int nvmlInit_v2(void);
__attribute__((weak)) int nvmlInitWithFlags(unsigned flags);
__attribute__((weak)) int nvmlShutdown(void);
__attribute__((weak)) int nvmlDeviceGetCount_v2(unsigned* count);
__attribute__((weak)) int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device);

#define ASK(function, ...)                                     \
  do {                                                         \
    if (function == NULL) {                                    \
      probe_print(1, #function "=null ");                      \
    } else {                                                   \
      probe_print(1, #function "=%d ", function(__VA_ARGS__)); \
    }                                                          \
  } while (0)

static void ask_loaded(const char* library, const char* name) {
  void* handle = dlopen(library, RTLD_NOW);
  int (*init)(unsigned) = handle == NULL ? NULL : (int (*)(unsigned))dlsym(handle, name);
  probe_print(1, "loaded.%s=%d ", name, init == NULL ? -1 : init(0));
}

static int print_ours(struct dl_phdr_info* object, size_t size, void* data) {
  (void)size;
  (void)data;
  const char* file = strrchr(object->dlpi_name, '/');
  if (strstr(object->dlpi_name, "/cudaguard/lib") != NULL) probe_print(1, "%s,", file + 1);
  return 0;
}

int main(void) {
  void* function = &function;
  int status = 0;
  unsigned count = 0;
  void* device = NULL;
  int number = 0;
  ASK(cuInit, 0);
  ASK(cuDeviceGet, &number, 0);
  ASK(cuGetProcAddress, "cuInit", &function, 12000, 0);
  probe_print(1, "function=%s ", function == NULL ? "null" : "set");
  ASK(cuGetProcAddress_v2, "cuInit", &function, 12000, 0, &status);
  ASK(nvmlInit);
  ASK(nvmlInit_v2);
  ASK(nvmlInitWithFlags, 0);
  ASK(nvmlDeviceGetCount_v2, &count);
  ASK(nvmlDeviceGetHandleByIndex_v2, 0, &device);
  ASK(nvmlShutdown);
  ask_loaded("libcuda.so.1", "cuInit");
  ask_loaded("libnvidia-ml.so.1", "nvmlInit_v2");
  probe_print(1, "ours=");
  dl_iterate_phdr(print_ours, NULL);
  probe_print(1, "\n");
  return 0;
}

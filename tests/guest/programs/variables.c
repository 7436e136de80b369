// SPDX-License-Identifier: Apache-2.0
// A library that loads the driver and NVML into variables of their names, as cuew and slang-rhi do;
// the runtime too with -DRUNTIME. It sets them to null when it is loaded, and again when it is
// asked.
#include <dlfcn.h>
#include <stddef.h>

int (*cuInit)(unsigned);
int (*cuDeviceGet)(int*, int);
int (*nvmlInit_v2)(void);
#ifdef RUNTIME
int (*cudaSetDevice)(int);
#endif

static void clear(void) {
  cuInit = NULL;
  cuDeviceGet = NULL;
  nvmlInit_v2 = NULL;
#ifdef RUNTIME
  cudaSetDevice = NULL;
#endif
}

__attribute__((constructor)) static void on_load(void) { clear(); }

int plugin_begin(void) {
  clear();
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  void* nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (driver == NULL || nvml == NULL) return -1;
  *(void**)&cuInit = dlsym(driver, "cuInit");
  *(void**)&cuDeviceGet = dlsym(driver, "cuDeviceGet");
  *(void**)&nvmlInit_v2 = dlsym(nvml, "nvmlInit_v2");
  const int started = nvmlInit_v2();
  if (cuDeviceGet == NULL || (started != 0 && started != 9)) return -2;  // 9: guarded
  const volatile int answer = cuInit(0);  // no tail call: the caller is this library
  return answer;
}

// SPDX-License-Identifier: Apache-2.0
// A plug-in that makes every kind of call that the guard sees, and can be unloaded.
#include <dlfcn.h>
#include <stddef.h>

int cudaGetDeviceCount(int* count);
int cudaSetDevice(int device);

static int init(const char* library, const char* name) {
  void* handle = dlopen(library, RTLD_NOW);
  int (*call)(unsigned) = handle != NULL ? (int (*)(unsigned))dlsym(handle, name) : NULL;
  const int result = call != NULL ? call(0) : -1;
  __asm__ volatile("");  // forces a call instead of a jump
  return result;
}

int driver(void) { return init("libcuda.so.1", "cuInit"); }
int nvml(void) { return init("libnvidia-ml.so.1", "nvmlInit_v2"); }
int opencl(void) { return dlopen("libnvidia-opencl.so.1", RTLD_NOW) != NULL; }

// The index is one that no machine has.
int driver_index(void) {
  void* handle = dlopen("libcuda.so.1", RTLD_NOW);
  int (*call)(int*, int) = handle != NULL ? (int (*)(int*, int))dlsym(handle, "cuDeviceGet") : NULL;
  int device = 0;
  const int result = call != NULL ? call(&device, 77) : -1;
  __asm__ volatile("");
  return result;
}

int runtime(void) {
  int count = 0;
  const int result = cudaGetDeviceCount(&count);
  return 1000 * result + cudaSetDevice(77);
}

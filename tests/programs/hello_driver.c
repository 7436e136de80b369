// SPDX-License-Identifier: Apache-2.0
// Does the same as hello_cuda by the driver API. scripts/quickstart runs it with a recording fake
// on a machine without a driver, because NVIDIA's runtime answers 103 if the driver is not
// NVIDIA's.
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static void* g_driver;

static void* function(const char* name) {
  void* found = dlsym(g_driver, name);
  if (found == NULL) {
    printf("hello_driver: %s\n", dlerror());
    exit(1);
  }
  return found;
}

#define CALL(name, parameters, ...) ((int(*) parameters)function(#name))(__VA_ARGS__)

int main(void) {
  g_driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (g_driver == NULL) {
    printf("hello_driver: %s; working on the CPU\n", dlerror());
    return 0;
  }
  const int error = CALL(cuInit, (unsigned), 0);
  if (error != 0) {
    const char* text = "";
    CALL(cuGetErrorString, (int, const char**), error, &text);
    printf("hello_driver: %s (error %d); working on the CPU\n", text, error);
    return 0;
  }
  int count = 0;
  void* context = NULL;
  uint64_t memory = 0;
  const float in[4] = {1, 2, 3, 4};
  float out[4] = {0};
  if (CALL(cuDeviceGetCount, (int*), &count) != 0 ||
      CALL(cuDevicePrimaryCtxRetain, (void**, int), &context, 0) != 0 ||
      CALL(cuCtxSetCurrent, (void*), context) != 0 ||
      CALL(cuMemAlloc_v2, (uint64_t*, size_t), &memory, sizeof in) != 0 ||
      CALL(cuMemcpyHtoD_v2, (uint64_t, const void*, size_t), memory, in, sizeof in) != 0 ||
      CALL(cuMemcpyDtoH_v2, (void*, uint64_t, size_t), out, memory, sizeof out) != 0) {
    printf("hello_driver: the GPU could not be used\n");
    return 1;
  }
  CALL(cuMemFree_v2, (uint64_t), memory);
  printf("hello_driver: %d GPU(s), copied %.0f %.0f %.0f %.0f there and back\n", count, out[0],
         out[1], out[2], out[3]);
  return 0;
}

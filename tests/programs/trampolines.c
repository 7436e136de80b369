// SPDX-License-Identifier: Apache-2.0
// Exports functions with the driver's names. Each opens the driver at its first call and forwards
// the call by the driver's handle, as TensorFlow's 608 generated trampolines do.
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

static void* resolve(const char* name) {
  static void* handle;
  if (handle == NULL) handle = dlopen("libcuda.so.1", RTLD_NOW);
  return handle == NULL ? NULL : dlsym(handle, name);
}

#define TRAMPOLINE(name, parameters, arguments)                 \
  int name parameters {                                         \
    static int(*next) parameters;                               \
    if (next == NULL) next = (int(*) parameters)resolve(#name); \
    return next == NULL ? 303 : next arguments;                 \
  }

TRAMPOLINE(cuInit, (unsigned flags), (flags))
TRAMPOLINE(cuDriverGetVersion, (int* version), (version))
TRAMPOLINE(cuDeviceGetCount, (int* count), (count))
TRAMPOLINE(cuGetErrorName, (int error, const char** text), (error, text))
TRAMPOLINE(cuGetProcAddress, (const char* name, void** function, int version, uint64_t flags),
           (name, function, version, flags))
TRAMPOLINE(cuGetProcAddress_v2,
           (const char* name, void** function, int version, uint64_t flags, int* status),
           (name, function, version, flags, status))

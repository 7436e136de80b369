// SPDX-License-Identifier: Apache-2.0
// A library between a program and the driver: it is linked to libcuda.so.1, the program to it.
#include <dlfcn.h>

#include "linked.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT int middle_count(void);
EXPORT int (*middle_next(void))(unsigned);

int middle_count(void) {
  int count = -7;
  return cuDeviceGetCount(&count);
}

int (*middle_next(void))(unsigned) {
  // No tail call: dlsym goes by its return address.
  void* volatile found = dlsym(RTLD_NEXT, "cuInit");
  return (int (*)(unsigned))found;
}

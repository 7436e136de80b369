// SPDX-License-Identifier: Apache-2.0
// A library between a program and the driver: the program is linked to it, and it is linked to
// libcuda.so.1.
#include <dlfcn.h>

#include "linked.h"

int middle_count(void) {
  int count = -7;
  return cuDeviceGetCount(&count);
}

int (*middle_next(void))(unsigned) {
  // This must not be a tail call, because dlsym uses its return address.
  void* volatile found = dlsym(RTLD_NEXT, "cuInit");
  return (int (*)(unsigned))found;
}

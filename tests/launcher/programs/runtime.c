// SPDX-License-Identifier: Apache-2.0
// A library that asks for CUDA when its user calls it.
#include <dlfcn.h>
int ask(void) {
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuInit");
  return init(0) + 1;
}

// SPDX-License-Identifier: Apache-2.0
// A library with a variable that has the name of a driver's function, and is filled with it, as in
// cuew, slang-rhi and NVIDIA's dynlink headers.
#ifndef NAME
#define NAME cuInit
#endif
#include <dlfcn.h>
#ifdef HIDDEN
__attribute__((visibility("hidden")))
#endif
int (*NAME)(unsigned);
int use(void) {
  void* handle = dlopen("libcuda.so.1", RTLD_NOW);
  NAME = handle ? (int (*)(unsigned))dlsym(handle, "cuInit") : 0;
  return NAME ? NAME(0) : -1;
}

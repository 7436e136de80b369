// SPDX-License-Identifier: Apache-2.0
// A library with a variable that has the name of a driver's function. With LOADS it is filled with
// the driver's function, as in cuew, slang-rhi and NVIDIA's dynlink headers. Otherwise it leads to
// a function of the library, as in CUDA's own samples.
#ifndef NAME
#define NAME cuInit
#endif
#ifdef LOADS
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
#ifdef MORE
int (*cuDeviceGet)(int*, int);
int has_more(void) { return cuDeviceGet != 0; }
#endif
#else
static int mine(unsigned x) { return 42 + (int)x; }
int (*NAME)(unsigned) = mine;
int use(void) { return NAME(0); }
#endif

// SPDX-License-Identifier: Apache-2.0
// Opens the library in its argument, or with DRIVER the driver, and initialises it. With LINKED it
// is also linked to the driver.
#include <dlfcn.h>
#include <stdio.h>
#ifdef LINKED
int cuInit(unsigned);
int (*keep)(unsigned) = cuInit;
#endif
int main(int argc, char** argv) {
#ifdef DRIVER
  const char* library = argc < 2 ? "libcuda.so.1" : argv[1];
#else
  const char* library = argc < 2 ? NULL : argv[1];
#endif
  void* handle = library ? dlopen(library, RTLD_NOW) : NULL;
  int (*init)(unsigned) = handle ? (int (*)(unsigned))dlsym(handle, "cuInit") : NULL;
  printf("cuInit=%d\n", init ? init(0) : -1);
  return 0;
}

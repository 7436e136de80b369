// SPDX-License-Identifier: Apache-2.0
// Its dlopen calls the next definition, which is the guard's. With a second argument, it calls that
// of this library, which is libc. The first one is the library to open.
#include <dlfcn.h>
#include <stdio.h>
static void* (*real)(const char*, int);
void* dlopen(const char* name, int flags) { return real(name, flags); }
int main(int argc, char** argv) {
  real = (void* (*)(const char*, int))dlsym(RTLD_NEXT, "dlopen");
  if (argc > 2) real = (void* (*)(const char*, int))dlsym(dlopen(argv[2], RTLD_NOW), "dlopen");
  void* handle = dlopen(argv[1], RTLD_NOW);
  printf("cuInit=%d\n", handle ? ((int (*)(unsigned))dlsym(handle, "cuInit"))(0) : -1);
  return 0;
}

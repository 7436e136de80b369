// SPDX-License-Identifier: Apache-2.0
// Prints which file a look-up of cuInit finds after the first dlopen: "none" if there is none. This
// file is the program (CG_MAIN) or its library. Either may refer to cuInit or define it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#if defined(CG_DEFINES)
int cuInit(unsigned flags) { return flags == 0 ? 77 : 78; }
#elif defined(CG_LAZY)
extern int cuInit(unsigned flags);
#else
extern int cuInit(unsigned flags) __attribute__((weak));
#endif

#if defined(CG_CALLS)  // through the PLT
int cg_call(int call) { return call > 1000 ? cuInit(0) : 0; }
#elif defined(CG_ADDRESS)  // a relocation of data, or a program's own address of the function
int (*cg_address)(unsigned) = cuInit;
int cg_call(int call) { return call > 1000 ? cg_address(0) : 0; }
#elif defined(CG_HIDDEN)   // an object that exports nothing
__attribute__((visibility("hidden"))) int (*cg_address)(unsigned) = cuInit;
__attribute__((constructor)) static void start(void) { cg_address += cg_address == NULL; }
#elif defined(CG_LAZY)     // a program at a fixed address: others see its PLT entry as the function
int (*volatile cg_address)(unsigned);
int cg_call(int call) {
  cg_address = cuInit;
  return call;
}
#else
int cg_call(int call) { return call; }
#endif

#if defined(CG_MAIN)
int main(int count, char** words) {
  (void)words;
  if (cg_call(count) > 1000 || dlopen("libm.so.6", RTLD_NOW) == NULL) return 1;
#if defined(CG_LAZY)
  return printf("answer %d\n", cuInit(0)) < 0;
#endif
  void* found = dlsym(RTLD_DEFAULT, "cuInit");
  Dl_info info;
  if (found == NULL || dladdr(found, &info) == 0) return puts("none") < 0;
  return puts(strrchr(info.dli_fname, '/') + 1) < 0;
}
#endif

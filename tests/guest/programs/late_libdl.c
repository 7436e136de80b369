// SPDX-License-Identifier: Apache-2.0
// A program that is not linked to libdl.so.2 of glibc < 2.34. libc itself loads the library that
// LIBRARY is built as, and so libdl, in a local scope only: name services are loaded so.
#ifdef LIBRARY
#include <dlfcn.h>
#include <stddef.h>

__attribute__((visibility("default"))) int open_and_close(void) {
  void* by_dlmopen = dlmopen(LM_ID_BASE, "libm.so.6", RTLD_NOW);
  void* handle = dlopen("libm.so.6", RTLD_NOW);
  const int versioned = dlvsym(handle, "sqrt", "CG_1") == NULL && dlerror() != NULL;
  return (by_dlmopen != NULL) + 2 * (handle != NULL) + 4 * versioned +
         8 * (by_dlmopen != NULL && dlclose(by_dlmopen) == 0) +
         16 * (handle != NULL && dlclose(handle) == 0);
}
#else
#include <stdio.h>

extern void* __libc_dlopen_mode(const char* name, int mode);
extern void* __libc_dlsym(void* handle, const char* name);

int main(int argc, char** argv) {
  void* library = __libc_dlopen_mode(argv[argc - 1], 0x80000002);  // RTLD_NOW, as libc does
  int (*call)(void) =
      library == NULL ? NULL : (int (*)(void))__libc_dlsym(library, "open_and_close");
  if (call != NULL) printf("answers %d\n", call());
  return call == NULL;
}
#endif

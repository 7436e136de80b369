// SPDX-License-Identifier: Apache-2.0
// -DLIBRARY: a constructor, which runs before the guard's, loads the library argv[1] by libc's own
// dlopen, as libc does for iconv. Otherwise: unloads that library, and loads argv[2].
#include <dlfcn.h>
#include <stdio.h>

#ifdef LIBRARY
static void* handle;

__attribute__((constructor)) static void on_load(int argc, char** argv) {
  void* (*open)(const char*, int) = (void* (*)(const char*, int))dlsym(RTLD_NEXT, "dlopen");
  if (argc > 1) handle = open(argv[1], RTLD_NOW);
}

int unload(void) { return handle == NULL ? -1 : dlclose(handle); }
#else
int unload(void);

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  printf("closed %d\n", unload());
  printf("still there %d\n", dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD) != NULL);
  printf("opened %d\n", dlopen(argv[2], RTLD_NOW) != NULL);
  return 0;
}
#endif

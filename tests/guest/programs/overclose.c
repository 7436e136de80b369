// SPDX-License-Identifier: Apache-2.0
// overclose LIBRARY COUNT: closes a library more often than it has opened it, uses the memory that
// a wrong dlclose would have freed, and opens libraries again. Prints what it got.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  void* handle = dlopen(argv[1], RTLD_NOW);
  printf("open %s\n", handle != NULL ? "ok" : "null");
  if (handle == NULL) return 1;
  printf("close %d\n", dlclose(handle));
  int failed = 0;
  for (int i = 1; i < atoi(argv[2]); ++i) failed += dlclose(handle) != 0;
  const char* error = failed > 0 ? dlerror() : NULL;
  error = error != NULL ? strrchr(error, ':') : NULL;
  printf("failed %d%s\n", failed, error != NULL ? error : "");
  for (size_t i = 0; i < 2000; ++i) {
    char* block = malloc(16 + i % 1400);
    if (block != NULL) memset(block, 'A', 16 + i % 1400);
  }
  printf("closed %s\n", dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD) == NULL ? "yes" : "no");
  printf("error %s\n", dlerror() == NULL ? "no" : "yes");
  handle = dlopen(argv[1], RTLD_NOW);
  printf("again %s\n", handle != NULL ? "ok" : "null");
  printf("other %s\n", dlopen("libm.so.6", RTLD_NOW) != NULL ? "ok" : "null");
  int (*init)(void) = (int (*)(void))dlsym(handle, "nvmlInit_v2");
  int (*init_cuda)(unsigned) = (int (*)(unsigned))dlsym(handle, "cuInit");
  if (init != NULL) printf("init %d\n", init());
  if (init_cuda != NULL) printf("init %d\n", init_cuda(0));
  return 0;
}

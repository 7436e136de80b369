// SPDX-License-Identifier: Apache-2.0
// overclose LIBRARY COUNT: closes a library more often than it has opened it, uses the memory that
// a wrong dlclose would have freed, and opens libraries again. Prints what it got.
// overclose LIBRARY WAY: opens a library in an unusual way, and closes it again. "base": by dlmopen
// in the base namespace; "both": by dlopen, too; "kept": with RTLD_NODELETE; "space": in a
// namespace of its own.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void is_loaded(Lmid_t space, const char* name) {
  void* handle = dlmopen(space, name, RTLD_LAZY | RTLD_NOLOAD);
  printf("loaded %s\n", handle != NULL ? "yes" : "no");
  if (handle != NULL) printf("close %d\n", dlclose(handle));
}

static int open_unusually(const char* name, const char* way) {
  const int kept = strcmp(way, "kept") == 0;
  Lmid_t space = strcmp(way, "space") == 0 ? LM_ID_NEWLM : LM_ID_BASE;
  void* other = strcmp(way, "both") == 0 ? dlopen(name, RTLD_NOW) : NULL;
  void* handle = kept ? dlopen(name, RTLD_NOW | RTLD_NODELETE) : dlmopen(space, name, RTLD_NOW);
  printf("open %s\n", handle != NULL ? "ok" : "null");
  if (handle == NULL || dlinfo(handle, RTLD_DI_LMID, &space) != 0) return 1;
  is_loaded(space, name);
  if (other != NULL) printf("close %d\n", dlclose(other));
  printf("close %d\n", dlclose(handle));
  if (space == LM_ID_BASE) is_loaded(space, name);
  if (kept) printf("close %d\n", dlclose(handle));
  return 0;
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  if (atoi(argv[2]) == 0) return open_unusually(argv[1], argv[2]);
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

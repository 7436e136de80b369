// SPDX-License-Identifier: Apache-2.0
// handles LIBRARY WAY: opens a library in an unusual way, closes it again, and prints what it got.
// "base": by dlmopen in the base namespace; "both": by dlopen, too; "kept": with RTLD_NODELETE;
// "space": in a namespace of its own.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const char* name;

static void is_loaded(Lmid_t space) {
  void* handle = dlmopen(space, name, RTLD_LAZY | RTLD_NOLOAD);
  printf("loaded %s\n", handle != NULL ? "yes" : "no");
  if (handle != NULL) printf("close %d\n", dlclose(handle));
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  name = argv[1];
  const char* way = argv[2];
  const int kept = strcmp(way, "kept") == 0;
  Lmid_t space = strcmp(way, "space") == 0 ? LM_ID_NEWLM : LM_ID_BASE;
  void* other = strcmp(way, "both") == 0 ? dlopen(name, RTLD_NOW) : NULL;
  void* handle = kept ? dlopen(name, RTLD_NOW | RTLD_NODELETE) : dlmopen(space, name, RTLD_NOW);
  printf("open %s\n", handle != NULL ? "ok" : "null");
  if (handle == NULL || dlinfo(handle, RTLD_DI_LMID, &space) != 0) return 1;
  is_loaded(space);
  if (other != NULL) printf("close %d\n", dlclose(other));
  printf("close %d\n", dlclose(handle));
  if (space == LM_ID_BASE) is_loaded(space);
  if (kept) printf("close %d\n", dlclose(handle));
  return 0;
}

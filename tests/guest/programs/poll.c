// SPDX-License-Identifier: Apache-2.0
// poll COUNT NAME [MODE]: asks COUNT times for a library by dlopen, and as often by dlmopen, each
// from one place. Prints how many requests gave a handle. CG_VIA says how it looks both functions
// up at each request: "default" or "self" (dlsym), or "version-default", "version-next" or
// "version-self" (dlvsym, CG_VERSION is glibc's new version). Without CG_VIA it calls what ld.so
// has bound its imports to.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "old_versions.h"

static void* self;

static void* find(void* bound, const char* name, const char* version) {
  const char* via = getenv("CG_VIA");
  if (via == NULL) return bound;
  if (getenv("CG_VERSION") != NULL) version = getenv("CG_VERSION");
  void* where = strstr(via, "self") != NULL   ? self
                : strstr(via, "next") != NULL ? RTLD_NEXT
                                              : RTLD_DEFAULT;
  void* volatile found =
      strstr(via, "version") != NULL ? dlvsym(where, name, version) : dlsym(where, name);
  return found;
}

int main(int argc, char** argv) {
  const int count = atoi(argv[1]);
  const int mode = RTLD_NOW | (argc > 3 ? RTLD_NOLOAD : 0);
  self = dlopen(NULL, RTLD_NOW);
  int opened = 0, in_base = 0;
  for (int i = 0; i < count; ++i) {
    void* (*open)(const char*, int) =
        (void* (*)(const char*, int))find((void*)dlopen, "dlopen", OLD_VERSION);
    opened += open(argv[2], mode) != NULL;
  }
  for (int i = 0; i < count; ++i) {
    void* (*open_in)(Lmid_t, const char*, int) =
        (void* (*)(Lmid_t, const char*, int))find((void*)dlmopen, "dlmopen", OLD_DLMOPEN);
    in_base += open_in(LM_ID_BASE, argv[2], mode) != NULL;
  }
  printf("opened %d in-base %d\n", opened, in_base);
  return 0;
}

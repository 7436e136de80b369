// SPDX-License-Identifier: Apache-2.0
// A dlopen and dlmopen of another product, as overlays and tracers have them. They look up the next
// definition at each call. $CG_HOOK is the scope (next, default), and $CG_HOOK_VERSION the version
// (old, new, unset). This is built as a library to preload or to link, and into the program itself.
#include <stdlib.h>
#include <unistd.h>

#include "versions.h"

static void* hooked(const char* name) {
  const char* where = getenv("CG_HOOK");
  void* from = where != NULL && strcmp(where, "default") == 0 ? RTLD_DEFAULT : RTLD_NEXT;
  void* found = look_up(from, name, getenv("CG_HOOK_VERSION"));
  if (found == NULL) _exit(96);
  return found;
}

__attribute__((visibility("default"))) void* dlopen(const char* name, int mode) {
  return ((void* (*)(const char*, int))hooked("dlopen"))(name, mode);
}

__attribute__((visibility("default"))) void* dlmopen(Lmid_t where, const char* name, int mode) {
  return ((void* (*)(Lmid_t, const char*, int))hooked("dlmopen"))(where, name, mode);
}

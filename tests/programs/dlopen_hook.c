// SPDX-License-Identifier: Apache-2.0
// A dlopen and dlmopen of somebody's own, as overlays and tracers bring them: they look up the one
// to go on to at each call. $CG_HOOK says where (next, default), $CG_HOOK_VERSION which one (old,
// new, unset). A library to preload or to be linked to, and in the program itself.
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

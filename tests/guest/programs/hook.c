// SPDX-License-Identifier: Apache-2.0
// Another preloaded library that hooks dlopen, dlmopen and cuInit's neighbours as tools do: it
// counts and goes on to the next definition. HOOK_TAG distinguishes two of them.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void note(const char* what, const char* name) {
  if (getenv("CG_HOOK_LOG") == NULL) return;
  char text[512];
  const int length =
      snprintf(text, sizeof text, "%s %s(%s)\n", HOOK_TAG, what, name ? name : "NULL");
  if (write(1, text, (size_t)length) != length) _exit(99);
}

// The caller's RUNPATH is lost by such a hook; that is its own affair.
void* dlopen(const char* name, int mode) {
  void* (*next)(const char*, int) = (void* (*)(const char*, int))dlsym(RTLD_NEXT, "dlopen");
  note("dlopen", name);
  return next(name, mode);
}

void* dlmopen(Lmid_t where, const char* name, int mode) {
  void* (*next)(Lmid_t, const char*, int) =
      (void* (*)(Lmid_t, const char*, int))dlsym(RTLD_NEXT, "dlmopen");
  note("dlmopen", name);
  return next(where, name, mode);
}

// SPDX-License-Identifier: Apache-2.0
// A preloaded library that hooks dlopen and dlmopen, counts the calls and prints the numbers at the
// end. CG_FIND says how it finds the next function: "next" or "default" (dlsym), "version-next" or
// "version-default" (dlvsym). "default" finds the first hook, so a call inside another one goes to
// the next. TAIL: it jumps to the function and leaves its caller's return address. It looks the
// function up at each call; ONCE: at the first. DLSYM_ONLY: it has no reference to dlvsym.
// OWN_DLVSYM: it hooks dlvsym, too.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "old_versions.h"

#ifdef ONCE
#define LOOKED_UP static
#else
#define LOOKED_UP
#endif

static int opens, dlmopens;

static void* find(const char* name, const char* old) {
  const char* how = getenv("CG_FIND");
  static int inside;
  if (strcmp(how, "default") == 0) {
    inside = !inside;
    return dlsym(inside ? RTLD_DEFAULT : RTLD_NEXT, name);
  }
#ifdef DLSYM_ONLY
  (void)old;
  return dlsym(RTLD_NEXT, name);
#else
  if (strcmp(how, "next") == 0) return dlsym(RTLD_NEXT, name);
  void* where = strcmp(how, "version-next") == 0 ? RTLD_NEXT : RTLD_DEFAULT;
  void* found = dlvsym(where, name, old);
  return found != NULL ? found : dlvsym(where, name, "GLIBC_2.34");
#endif
}

static void stop_if_endless(int calls) {
  if (calls < 100000) return;
  if (write(1, "endless\n", 8) != 8) _exit(98);
  _exit(99);
}

void* dlopen(const char* name, int mode) {
  stop_if_endless(++opens);
  LOOKED_UP void* (*next)(const char*, int) = NULL;
  if (next == NULL) next = (void* (*)(const char*, int))find("dlopen", OLD_VERSION);
#ifdef TAIL
  return next(name, mode);
#else
  void* volatile result = next(name, mode);
  return result;
#endif
}

void* dlmopen(Lmid_t where, const char* name, int mode) {
  stop_if_endless(++dlmopens);
  LOOKED_UP void* (*next)(Lmid_t, const char*, int) = NULL;
  if (next == NULL) next = (void* (*)(Lmid_t, const char*, int))find("dlmopen", OLD_DLMOPEN);
#ifdef TAIL
  return next(where, name, mode);
#else
  void* volatile result = next(where, name, mode);
  return result;
#endif
}

__attribute__((destructor)) static void print(void) {
  char text[64];
  const int length = snprintf(text, sizeof text, "dlopen %d dlmopen %d\n", opens, dlmopens);
  if (write(1, text, (size_t)length) != length) _exit(98);
#ifdef OWN_DLVSYM
  dprintf(1, "dlvsym %d\n", lookups);
#endif
}

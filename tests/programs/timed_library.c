// SPDX-License-Identifier: Apache-2.0
// A library that goes through the entry point in its constructor or destructor: linked to a program
// its constructor runs before the guard would have had one. With CG_WHEN=own-next it takes dlopen
// from the libraries behind itself, as a preloaded library that hooks dlopen does.
#include "timed.h"

__attribute__((constructor)) static void enter(void) { timed_probe("library-constructor"); }

__attribute__((destructor)) static void leave(void) { timed_probe("library-destructor"); }

__attribute__((constructor)) static void enter_behind(void) {
  const char* when = getenv("CG_WHEN");
  if (when == NULL || strcmp(when, "own-next") != 0) return;
  void* (*next_dlopen)(const char*, int) = (void* (*)(const char*, int))dlsym(RTLD_NEXT, "dlopen");
  const char* name = getenv("CG_TIMED_LIB");
  void* handle = next_dlopen(name != NULL ? name : "libcuda.so.1", RTLD_NOW);
  if (handle == NULL) {
    probe_say(1, "open=null error=%s\n", dlerror());
  } else {
    probe_cuda(1, timed_find, handle);
  }
}

__attribute__((visibility("default"))) void timed_library(void);
void timed_library(void) {}

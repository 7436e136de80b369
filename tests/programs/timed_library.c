// SPDX-License-Identifier: Apache-2.0
// A library that uses the entry point in its constructor or destructor. If a program is linked to
// it, its constructor runs before a constructor of the guard could. With CG_WHEN=own-next it gets
// dlopen from the libraries that follow it, as a preloaded library that hooks dlopen does.
#include "timed.h"

__attribute__((constructor)) static void enter(void) { timed_probe("library-constructor"); }

__attribute__((destructor)) static void leave(void) { timed_probe("library-destructor"); }

__attribute__((constructor)) static void enter_after(void) {
  const char* when = getenv("CG_WHEN");
  if (when == NULL || strcmp(when, "own-next") != 0) return;
  void* (*next_dlopen)(const char*, int) = (void* (*)(const char*, int))dlsym(RTLD_NEXT, "dlopen");
  const char* name = getenv("CG_TIMED_LIB");
  void* handle = next_dlopen(name != NULL ? name : "libcuda.so.1", RTLD_NOW);
  if (handle == NULL) {
    probe_print(1, "open=null error=%s\n", dlerror());
  } else {
    probe_cuda(1, timed_find, handle);
  }
}

void timed_library(void) {}

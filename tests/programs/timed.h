// SPDX-License-Identifier: Apache-2.0
// The programs that use an entry point at an unusual time share this.
#ifndef CUDAGUARD_TESTS_PROGRAMS_TIMED_H
#define CUDAGUARD_TESTS_PROGRAMS_TIMED_H

#include <dlfcn.h>
#include <stdlib.h>

#include "probe.h"

static inline void* timed_find(void* context, const char* name) { return dlsym(context, name); }

static inline void timed_open(const char* name) {
  void* handle = dlopen(name, RTLD_NOW);
  if (handle == NULL) {
    probe_print(1, "open=null error=%s\n", dlerror());
  } else if (strstr(name, "nvidia-ml") != NULL) {
    probe_nvml(1, timed_find, handle);
  } else {
    probe_cuda(1, timed_find, handle);
  }
}

// Uses the entry point if $CG_WHEN names this moment. $CG_TIMED_LIB names the library.
static inline void timed_probe(const char* moment) {
  const char* when = getenv("CG_WHEN");
  if (when == NULL || strcmp(when, moment) != 0) return;
  const char* name = getenv("CG_TIMED_LIB");
  timed_open(name == NULL ? "libcuda.so.1" : name);
}

#endif

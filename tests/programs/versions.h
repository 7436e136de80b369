// SPDX-License-Identifier: Apache-2.0
// dlopen and dlmopen looked up by name and, with dlvsym, by glibc's version: "old" is that of
// libdl.so.2, "new" came when libc.so.6 took them over; null is no version, by dlsym.
#ifndef CUDAGUARD_TESTS_PROGRAMS_VERSIONS_H
#define CUDAGUARD_TESTS_PROGRAMS_VERSIONS_H

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

// Inlined: RTLD_NEXT goes by the object that calls, and by a return address, so no tail call.
static inline void* look_up(void* where, const char* name, const char* version) {
  const char* wanted = "GLIBC_2.34";
  if (version != NULL && strcmp(version, "old") == 0) {
#if defined(__aarch64__)
    wanted = "GLIBC_2.17";
#else
    wanted = strcmp(name, "dlmopen") == 0 ? "GLIBC_2.3.4" : "GLIBC_2.2.5";
#endif
  }
  void* volatile found = version == NULL ? dlsym(where, name) : dlvsym(where, name, wanted);
  return found;
}

#endif

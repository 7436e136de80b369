// SPDX-License-Identifier: Apache-2.0
// Looks up dlopen and dlmopen by name and, with dlvsym, by glibc's version. "old" is libdl.so.2's
// version, and "new" the version since the functions moved to libc.so.6. null uses dlsym without a
// version.
#ifndef CUDAGUARD_TESTS_PROGRAMS_VERSIONS_H
#define CUDAGUARD_TESTS_PROGRAMS_VERSIONS_H

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

static inline const char* glibcs_version(const char* name, const char* version) {
  if (strcmp(version, "old") != 0) return "GLIBC_2.34";
#if defined(__aarch64__)
  (void)name;
  return "GLIBC_2.17";
#else
  return strcmp(name, "dlmopen") == 0 ? "GLIBC_2.3.4" : "GLIBC_2.2.5";
#endif
}

// Always inlined and never in tail position, because RTLD_NEXT depends on the return address in the
// calling object.
static inline void* look_up(void* where, const char* name, const char* version) {
  void* volatile found =
      version == NULL ? dlsym(where, name) : dlvsym(where, name, glibcs_version(name, version));
  return found;
}

#endif

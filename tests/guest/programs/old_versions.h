// SPDX-License-Identifier: Apache-2.0
// The versions under which the oldest glibc of this machine defines functions of libdl. With
// OWN_DLVSYM a hook of dlvsym, which counts its calls.
#pragma once
#include <dlfcn.h>

#ifdef __x86_64__
#define OLD_VERSION "GLIBC_2.2.5"
#define OLD_DLMOPEN "GLIBC_2.3.4"
#else
#define OLD_VERSION "GLIBC_2.17"
#define OLD_DLMOPEN "GLIBC_2.17"
#endif

#ifdef OWN_DLVSYM
static int lookups;

void* dlvsym(void* where, const char* name, const char* version) {
  ++lookups;
  void* (*next)(void*, const char*, const char*) =
      (void* (*)(void*, const char*, const char*))dlsym(RTLD_NEXT, "dlvsym");
  void* volatile result = next(where, name, version);
  return result;
}
#endif

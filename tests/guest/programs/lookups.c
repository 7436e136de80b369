// SPDX-License-Identifier: Apache-2.0
// Looks functions up by dlvsym in several scopes, and prints for each the file that defines what
// dlvsym found or dlerror's text, and errno if it has changed. Built as a program (PROGRAM) and as
// a library, which looks them up in its constructor, too.
//   lookups                   from the program
//   lookups deepbind LIBRARY  from a library that is loaded so; space: in a new namespace
//   lookups null-name | null-version | null-other
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "old_versions.h"

// Not the version "": ld.so then crashes at a definition without a version, whose library it is.
static const char* const kNames[][2] = {
    {"dlopen", OLD_VERSION},  {"dlopen", "GLIBC_2.34"}, {"dlopen", "GLIBC_2.3.4"},
    {"dlopen", "CG_1"},       {"dlmopen", OLD_DLMOPEN}, {"dlmopen", "CG_1"},
    {"dlvsym", OLD_VERSION},  {"dlvsym", "CG_1"},       {"dlsym", OLD_VERSION},
    {"dlsym", "CG_1"},        {"dlclose", OLD_VERSION}, {"dlopen64", OLD_VERSION},
    {"cg_none", OLD_VERSION}, {"getenv", OLD_VERSION},
};

static void look_up(const char* from, const char* scope, void* where) {
  for (size_t i = 0; i < sizeof kNames / sizeof *kNames; ++i) {
    dlsym(RTLD_DEFAULT, "cg_pending");  // an error that nobody has asked for
    errno = 77;
    void* volatile found = dlvsym(where, kNames[i][0], kNames[i][1]);
    const int error = errno;
    Dl_info info;
    const char* what = dlerror();
    if (found != NULL) {
      if (what != NULL) dprintf(1, "left: %s\n", what);
      what = dladdr(found, &info) != 0 ? strrchr(info.dli_fname, '/') : "nowhere";
    }
    dprintf(1, "%s %s %s@%s: %s\n", from, scope, kNames[i][0], kNames[i][1], what);
    if (error != 77) dprintf(1, "errno %d\n", error);
  }
}

__attribute__((visibility("default"))) void look_everywhere(const char* from) {
  look_up(from, "default", RTLD_DEFAULT);
  look_up(from, "next", RTLD_NEXT);
  look_up(from, "self", dlopen(NULL, RTLD_NOW));
  look_up(from, "libm", dlopen("libm.so.6", RTLD_NOW));
#ifdef OWN_DLVSYM
  dprintf(1, "own %d\n", lookups);
#endif
}

#ifdef PROGRAM
int main(int argc, char** argv) {
  const char* volatile none = NULL;
  if (argc < 2) {
    look_everywhere("program");
  } else if (strcmp(argv[1], "null-name") == 0) {
    dlvsym(RTLD_DEFAULT, none, OLD_VERSION);
  } else if (strcmp(argv[1], "null-version") == 0) {
    dlvsym(RTLD_DEFAULT, "dlopen", none);
  } else if (strcmp(argv[1], "null-other") == 0) {
    dlvsym(RTLD_DEFAULT, "getenv", none);
  } else {
    void* library = strcmp(argv[1], "space") == 0 ? dlmopen(LM_ID_NEWLM, argv[2], RTLD_NOW)
                                                  : dlopen(argv[2], RTLD_NOW | RTLD_DEEPBIND);
    if (library == NULL) return 1;
    ((void (*)(const char*))dlsym(library, "look_everywhere"))(argv[1]);
  }
  return 0;
}
#else
__attribute__((constructor)) static void start(void) {
  if (getenv("CG_START") != NULL) look_everywhere("start");
}
#endif

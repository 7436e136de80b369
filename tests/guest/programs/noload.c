// SPDX-License-Identifier: Apache-2.0
// noload [STEP...]: "?NAME" asks for a library with RTLD_NOLOAD, "NAME" loads it. Prints
// what it got.
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const int ask = argv[i][0] == '?';
    dlopen("/no/such/library", RTLD_NOW);  // an error that a successful call takes away
    void* handle = dlopen(argv[i] + ask, RTLD_LAZY | (ask ? RTLD_NOLOAD : 0));
    printf("%s %s%s\n", argv[i], handle != NULL ? "loaded" : "null",
           dlerror() != NULL ? ", error" : "");
  }
  return 0;
}

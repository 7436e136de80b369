// SPDX-License-Identifier: Apache-2.0
// Uses the entry point before main, after it, or in a library's constructor (CG_WHEN).
#include "timed.h"

void timed_library(void);

// This runs before libc has set `environ`. CG_WHEN=preinit sets `environ` first, preinit-raw leaves
// it unset.
static void before_all_constructors(int argc, char** argv, char** environment) {
  (void)argc;
  (void)argv;
  const char* when = "";
  for (char** entry = environment; *entry != NULL; ++entry) {
    if (strncmp(*entry, "CG_WHEN=", 8) == 0) when = *entry + 8;
  }
  if (strcmp(when, "preinit") == 0) {
    environ = environment;
    timed_probe("preinit");
  } else if (strcmp(when, "preinit-raw") == 0) {
    timed_open("libcuda.so.1");
  }
}

__attribute__((section(".preinit_array"),
               used)) static void (*g_first)(int, char**, char**) = before_all_constructors;

__attribute__((constructor)) static void enter(void) { timed_probe("constructor"); }

__attribute__((destructor)) static void leave(void) { timed_probe("destructor"); }

int main(void) {
  timed_library();
  return 0;
}

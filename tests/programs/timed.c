// SPDX-License-Identifier: Apache-2.0
// Goes through the door before main, after it, or in a library's constructor (CG_WHEN).
#include "timed.h"

void timed_library(void);

static void before_all_constructors(int argc, char** argv, char** environment) {
  (void)argc;
  (void)argv;
  (void)environment;
  timed_probe("preinit");
}

__attribute__((section(".preinit_array"),
               used)) static void (*g_first)(int, char**, char**) = before_all_constructors;

__attribute__((constructor)) static void enter(void) { timed_probe("constructor"); }

__attribute__((destructor)) static void leave(void) { timed_probe("destructor"); }

int main(void) {
  timed_library();
  return 0;
}

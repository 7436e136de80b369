// SPDX-License-Identifier: Apache-2.0
// An unwinder that says when it is called, in a library that calls `ask` while it is loaded.
#include <unistd.h>

void ask(void);
int _Unwind_Backtrace(int (*visit)(void*, void*), void* data);
unsigned long _Unwind_GetIP(void* frame);
int resolved(void);
extern int (*unready_reference)(void);

int _Unwind_Backtrace(int (*visit)(void*, void*), void* data) {
  (void)visit;
  (void)data;
  return write(1, "unwound\n", 8) == 8 ? 0 : 1;
}

unsigned long _Unwind_GetIP(void* frame) { return (unsigned long)frame; }

static int zero(void) { return 0; }

static int (*resolve(void))(void) {
  ask();
  return zero;
}

int resolved(void) __attribute__((ifunc("resolve")));

// A reference, so that ld.so asks the resolver.
int (*unready_reference)(void) = resolved;

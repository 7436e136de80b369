// SPDX-License-Identifier: Apache-2.0
// The fake runtime's calls that take a device index and are not in cudart.c. They return 101 for a
// bad index.
#include "indexed.h"

#define HIDDEN __attribute__((visibility("hidden")))
HIDDEN int fake_runtime_count(const char* name);
HIDDEN int fake_runtime_finish(int answer);

enum { kInvalidDevice = 101 };

static int indexed(const char* name, const char* layout, const intptr_t* arguments) {
  const int count = fake_runtime_count(name);
  if (count < 0) return fake_runtime_finish(-count);
  return fake_runtime_finish(indices_are_good(layout, arguments, count) ? 0 : kInvalidDevice);
}

#define WORD intptr_t
#define RUNTIME_INDEX(name, layout)                                                    \
  int name(WORD a, WORD b, WORD c, WORD d, WORD e, WORD f);                            \
  __attribute__((weak)) int name(WORD a, WORD b, WORD c, WORD d, WORD e, WORD f) {     \
    return indexed(#name, layout, (intptr_t[kMostArguments]){a, b, c, d, e, f, 0, 0}); \
  }
#include "indexed.inc"

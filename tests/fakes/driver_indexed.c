// SPDX-License-Identifier: Apache-2.0
// The fake driver's calls that take a device index and that the other files do not implement. Like
// NVIDIA's, they return 101 for a bad index.
#include "driver.h"
#include "indexed.h"

static int indexed(const char* name, const char* layout, const intptr_t* arguments) {
  fake_log("", name);
  if (driver_state() != kSuccess) return driver_state();
  return indices_are_good(layout, arguments, visible_count()) ? kSuccess : kInvalidDevice;
}

#define WORD intptr_t
#define DRIVER_INDEX(name, layout)                                                     \
  int name(WORD a, WORD b, WORD c, WORD d, WORD e, WORD f);                            \
  __attribute__((weak)) int name(WORD a, WORD b, WORD c, WORD d, WORD e, WORD f) {     \
    return indexed(#name, layout, (intptr_t[kMostArguments]){a, b, c, d, e, f, 0, 0}); \
  }
#include "indexed.inc"

// SPDX-License-Identifier: Apache-2.0
// The fake driver's names: all names of the table, one that no table has, and the look-up by name.
#include "driver.h"

// The names that the other files do not define return 999 once the driver is initialised.
#define CG_NAME(name)                                              \
  int name(void);                                                  \
  __attribute__((weak)) int name(void) {                           \
    fake_log("", #name);                                           \
    return driver_state() == kSuccess ? kUnknown : driver_state(); \
  }
#include "driver_names.inc"
#undef CG_NAME

// This name is newer than every name that cudaguard knows.
int cuBrandNewThing(int* answer) {
  fake_log("", "cuBrandNewThing");
  *answer = 4242;
  return kSuccess;
}

struct row {
  const char* base;
  const char* name;
  int version;
  int per_thread;
  any_function entry;
};

static const struct row kRows[] = {
#define CG_BASE(name)
#define CG_ROW(base, name, version, per_thread) \
  {#base, #name, version, per_thread, (any_function)name},
#include "driver_lookup.inc"
#undef CG_ROW
#undef CG_BASE
    {"cuBrandNewThing", "cuBrandNewThing", kBoxVersion, 0, (any_function)cuBrandNewThing},
};

enum { kPerThread = 2 };

int look_up(const char* name, void** entry, int version, uint64_t flags) {
  const struct row* plain = NULL;
  const struct row* threaded = NULL;
  int known = 0;
  int has_threaded = 0;
  for (size_t i = 0; i < sizeof kRows / sizeof *kRows; ++i) {
    const struct row* row = &kRows[i];
    if (strcmp(row->base, name) != 0) continue;
    known = 1;
    has_threaded |= row->per_thread;
    if (row->version > version) continue;
    const struct row** best = row->per_thread ? &threaded : &plain;
    if (*best == NULL || row->version >= (*best)->version) *best = row;
  }
  const struct row* chosen = (flags & kPerThread) != 0 && has_threaded ? threaded : plain;
  *entry = chosen == NULL ? NULL : (void*)chosen->entry;
  return chosen != NULL ? 0 : known ? 2 : 1;
}

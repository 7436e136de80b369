// SPDX-License-Identifier: Apache-2.0
// Makes calls of indexed.inc: the runtime's as the linker bound them, the driver's by dlsym. Each
// argument is "NAME,POSITION,INDEX", which makes the call with this index as that parameter and 0
// for all others. With CG_DLSYM the runtime's functions are also found by dlsym, on the runtime's
// own handle, as ctypes does it.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "indexed.h"

typedef int function(intptr_t, intptr_t, intptr_t, intptr_t, intptr_t, intptr_t);
typedef function* call;

#define RUNTIME_INDEX(name, layout) function name;
#include "indexed.inc"

struct row {
  const char* name;
  const char* layout;
  call function;  // NULL if dlsym finds it
};

static const struct row kRows[] = {
#define DRIVER_INDEX(name, layout) {#name, layout, NULL},
#define RUNTIME_INDEX(name, layout) {#name, layout, name},
#include "indexed.inc"
};

// Finds the function by dlsym on the handle of its own library. Returns NULL if there is none.
static call look_up(const char* name) {
  static void* runtime;
  static void* driver;
  if (strncmp(name, "cuda", 4) == 0) {
    if (runtime == NULL) runtime = dlopen(RUNTIME, RTLD_NOW);
    return runtime == NULL ? NULL : (call)dlsym(runtime, name);
  }
  if (driver == NULL) {
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    const call init = driver == NULL ? NULL : (call)dlsym(driver, "cuInit");
    if (init == NULL || init(0, 0, 0, 0, 0, 0) != 0) return NULL;
  }
  return (call)dlsym(driver, name);
}

static int make_call(const struct row* row, int position, int index) {
  static char room[kMostArguments][4096];
  intptr_t arguments[kMostArguments] = {0};
  const int linked = row->function != NULL && getenv("CG_DLSYM") == NULL;
  const call make = linked ? row->function : look_up(row->name);
  if (make == NULL) return -999;
  memset(room, 0, sizeof room);
  for (int i = 0; row->layout[i] != '\0' && i < kMostArguments; ++i) {
    const char kind = row->layout[i];
    const int given = i == position ? index : 0;
    const int offset = offset_of_index(kind);
    arguments[i] = kind == 'p' || offset >= 0 ? (intptr_t)room[i] : 0;
    if (kind == 'd') arguments[i] = given;
    if (kind == 'l') arguments[i] = (intptr_t)((uint64_t)(uint32_t)given << 32 | kOnDevice);
    if (offset >= 0) memcpy(room[i] + offset, &given, sizeof given);
  }
  return make(arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    char name[80];
    int position = 0;
    int index = 0;
    if (sscanf(argv[i], "%79[^,],%d,%d", name, &position, &index) != 3) return 2;
    for (size_t k = 0; k < sizeof kRows / sizeof *kRows; ++k) {
      if (strcmp(kRows[k].name, name) == 0) {
        printf("%s=%d\n", argv[i], make_call(&kRows[k], position, index));
      }
    }
  }
  return 0;
}

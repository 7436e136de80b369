// SPDX-License-Identifier: Apache-2.0
// A program linked to the driver through another library (middle.c). The argument selects how it
// asks:
//   handle PATH [NAME]  dlsym(NAME) on the handle of a library, at PATH; the name is cuInit
//                       otherwise
//   next                that library calls dlsym(RTLD_NEXT)
//   deepbind PATH       the RTLD_DEEPBIND plug-in at PATH opens the driver itself
#include <dlfcn.h>

#include "probe.h"

int middle_count(void);
int (*middle_next(void))(unsigned);

static void print_init(const char* name, int (*init)(unsigned)) {
  if (init == NULL) {
    probe_print(1, "%s=null\n", name);
  } else {
    probe_print(1, "%s=%d\n", name, init(0));
  }
}

int main(int argc, char** argv) {
  if (argc < 2) return middle_count();  // keeps the library linked
  if (strcmp(argv[1], "next") == 0) {
    print_init("cuInit", middle_next());
    return 0;
  }
  if (argc < 3) return 2;
  const int deepbind = strcmp(argv[1], "deepbind") == 0;
  void* handle = dlopen(argv[2], RTLD_NOW | (deepbind ? RTLD_DEEPBIND : 0));
  if (handle == NULL) {
    probe_print(1, "open=null error=%s\n", dlerror());
    return 1;
  }
  if (deepbind) {
    ((void (*)(int))dlsym(handle, "plugin_probe"))(1);
  } else {
    const char* name = argc > 3 ? argv[3] : "cuInit";
    print_init(name, (int (*)(unsigned))dlsym(handle, name));
  }
  return 0;
}

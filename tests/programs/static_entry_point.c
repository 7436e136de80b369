// SPDX-License-Identifier: Apache-2.0
// A static program that dlopens the driver. LD_PRELOAD has no effect on it (a documented limit).
#include <dlfcn.h>

#include "probe.h"

static void* find(void* context, const char* name) { return dlsym(context, name); }

int main(int argc, char** argv) {
  void* handle = dlopen(argc > 1 ? argv[1] : "libcuda.so.1", RTLD_NOW);
  if (handle == NULL) {
    probe_print(1, "open=null error=%s\n", dlerror());
    return 1;
  }
  probe_cuda(1, find, handle);
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// A plug-in that opens the driver itself by each name in $CG_NAMES (colons between them). If it is
// loaded with RTLD_DEEPBIND, its dlopen is libc's own. With $CG_VERSION (old, new) it gets dlopen
// from dlvsym(RTLD_DEFAULT).
#include <stdlib.h>

#include "probe.h"
#include "versions.h"

static void* find(void* context, const char* name) { return dlsym(context, name); }

void plugin_probe(int out) {
  const char* given = getenv("CG_NAMES");
  const char* version = getenv("CG_VERSION");
  void* (*open_it)(const char*, int) = dlopen;
  if (version != NULL) {
    open_it = (void* (*)(const char*, int))look_up(RTLD_DEFAULT, "dlopen", version);
  }
  char names[1024];
  snprintf(names, sizeof names, "%s", given != NULL ? given : "libcuda.so.1:libcuda.so");
  char* rest = names;
  for (char* name; (name = strsep(&rest, ":")) != NULL;) {
    void* handle = open_it(name, RTLD_NOW);
    if (handle == NULL) {
      probe_print(out, "open=null error=%s\n", probe_word(dlerror()));
      continue;
    }
    if (strstr(name, "nvidia-ml") != NULL) {
      probe_nvml(out, find, handle);
    } else {
      probe_cuda(out, find, handle);
    }
  }
}

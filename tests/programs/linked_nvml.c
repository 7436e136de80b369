// SPDX-License-Identifier: Apache-2.0
// A program linked to libnvidia-ml.so.1. Its argument is linked_cuda's.
#include <dlfcn.h>

#include "linked.h"

static void* find_by_dlsym(void* context, const char* name) { return dlsym(context, name); }

int main(int argc, char** argv) {
  const char* way = argc > 1 ? argv[1] : "plt";
  if (strcmp(way, "dlopen") == 0 || strcmp(way, "devname") == 0) {
    void* handle = dlopen(way[1] == 'l' ? "libnvidia-ml.so.1" : "libnvidia-ml.so", RTLD_NOW);
    if (handle == NULL) {
      probe_print(1, "open=null error=%s\n", dlerror());
    } else {
      probe_nvml(1, find_by_dlsym, handle);
    }
  } else if (strcmp(way, "default") == 0) {
    probe_nvml(1, find_by_dlsym, RTLD_DEFAULT);
  } else if (strcmp(way, "next") == 0) {
    probe_nvml(1, find_by_dlsym, RTLD_NEXT);
  } else if (strcmp(way, "self") == 0) {
    probe_nvml(1, find_by_dlsym, dlopen(NULL, RTLD_NOW));
  } else {
    const int answer = nvmlInit_v2();
    const int answer_old = nvmlInit();
    const int answer_flags = nvmlInitWithFlags(0);
    unsigned count = 77;
    const int count_answer = nvmlDeviceGetCount_v2(&count);
    unsigned count_old = 77;
    nvmlDeviceGetCount(&count_old);
    const int shutdown_answer = nvmlShutdown();
    probe_print(1,
                "nvmlInit=%d nvmlInitOld=%d nvmlInitWithFlags=%d countRc=%d count=%u countOld=%u "
                "shutdown=%d\n",
                answer, answer_old, answer_flags, count_answer, count, count_old, shutdown_answer);
  }
  return 0;
}

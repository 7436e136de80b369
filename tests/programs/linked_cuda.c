// SPDX-License-Identifier: Apache-2.0
// A program linked to libcuda.so.1. The argument selects how it asks:
//   plt      calls cuInit and the others as any linked program does
//   proc     cuGetProcAddress_v2("cuInit"), proc1 the four-argument form
//   dlopen   dlopen("libcuda.so.1") + dlsym, as a static cudart inside such a program does
//   devname  the same with libcuda.so
//   default, next, self   dlsym(RTLD_DEFAULT), dlsym(RTLD_NEXT), dlsym(dlopen(NULL))
#include <dlfcn.h>

#include "linked.h"

static void* find_by_dlsym(void* context, const char* name) { return dlsym(context, name); }

static void* find_by_proc(void* context, const char* name) {
  (void)context;
  void* function = NULL;
  cuGetProcAddress_v2(name, &function, 13000, 0, NULL);
  return function;
}

static void* find_by_proc1(void* context, const char* name) {
  (void)context;
  void* function = NULL;
  cuGetProcAddress(name, &function, 11030, 0);
  return function;
}

static void probe_opened(const char* name) {
  void* handle = dlopen(name, RTLD_NOW);
  if (handle == NULL) {
    probe_print(1, "open=null error=%s\n", dlerror());
    return;
  }
  probe_cuda(1, find_by_dlsym, handle);
}

int main(int argc, char** argv) {
  const char* way = argc > 1 ? argv[1] : "plt";
  if (strcmp(way, "proc") == 0) {
    probe_cuda(1, find_by_proc, NULL);
  } else if (strcmp(way, "proc1") == 0) {
    probe_cuda(1, find_by_proc1, NULL);
  } else if (strcmp(way, "dlopen") == 0) {
    probe_opened("libcuda.so.1");
  } else if (strcmp(way, "devname") == 0) {
    probe_opened("libcuda.so");
  } else if (strcmp(way, "default") == 0) {
    probe_cuda(1, find_by_dlsym, RTLD_DEFAULT);
  } else if (strcmp(way, "next") == 0) {
    probe_cuda(1, find_by_dlsym, RTLD_NEXT);
  } else if (strcmp(way, "self") == 0) {
    probe_cuda(1, find_by_dlsym, dlopen(NULL, RTLD_NOW));
  } else {
    // These are direct calls, so that lazy binding resolves them.
    const int answer = cuInit(0);
    const int answer_flags = cuInit(1);
    int version = -7;
    const int version_answer = cuDriverGetVersion(&version);
    int count = -7;
    const int count_answer = cuDeviceGetCount(&count);
    probe_print(1, "cuInit=%d cuInit1=%d versionRc=%d version=%d countRc=%d count=%d\n", answer,
                answer_flags, version_answer, version, count_answer, count);
  }
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// A program linked to libcuda.so.1. The argument selects how it asks:
//   plt      calls cuInit and the others as any linked program does
//   proc     cuGetProcAddress_v2("cuInit"), proc1 the four-argument form
//   dlopen   dlopen("libcuda.so.1") + dlsym, as a static cudart inside such a program does
//   devname  the same with libcuda.so
//   default, next, self   dlsym(RTLD_DEFAULT), dlsym(RTLD_NEXT), dlsym(dlopen(NULL))
#include "linked.h"

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

int main(int argc, char** argv) {
  const char* way = argc > 1 ? argv[1] : "plt";
  if (strcmp(way, "proc") == 0) {
    probe_cuda(1, find_by_proc, NULL);
  } else if (strcmp(way, "proc1") == 0) {
    probe_cuda(1, find_by_proc1, NULL);
  } else if (!probe_found(way, "libcuda.so.1", probe_cuda)) {
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

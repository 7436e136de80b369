// SPDX-License-Identifier: Apache-2.0
// Opens the null drivers given as arguments 2 and 3 and makes calls, some of which are CUDA
// attempts. Argument 1 is the way to open them: dlopen, or dlmopen with a new namespace each time.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char __executable_start;
extern char etext;

static void* get(void* library, const char* name) {
  void* function = dlsym(library, name);
  if (function == NULL) {
    printf("no %s: %s\n", name, dlerror());
    exit(1);
  }
  return function;
}

static void* open_library(const char* way, const char* path) {
  void* library = strcmp(way, "dlmopen") == 0 ? dlmopen(LM_ID_NEWLM, path, RTLD_NOW)
                                              : dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    printf("%s\n", dlerror());
    exit(1);
  }
  return library;
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  setvbuf(stdout, NULL, _IOLBF, 0);
  void (*report_program)(const void*, const void*) =
      (void (*)(const void*, const void*))dlsym(RTLD_DEFAULT, "record_program");
  if (report_program != NULL) report_program(&__executable_start, &etext);

  void* cuda = open_library(argv[1], argv[2]);
  int (*cu_init)(unsigned) = (int (*)(unsigned))get(cuda, "cuInit");
  int (*get_count)(int*) = (int (*)(int*))get(cuda, "cuDeviceGetCount");
  int count = 7;
  const int count_answer = get_count(&count);
  printf("cuDeviceGetCount %d %d\n", count_answer, count);
  printf("cuInit(1) %d\n", cu_init(1));
  printf("cuInit(0) %d\n", cu_init(0));
  printf("cuInit(0) %d\n", cu_init(0));

  void* nvml = open_library(argv[1], argv[3]);
  int (*init)(void) = (int (*)(void))get(nvml, "nvmlInit");
  int (*init_v2)(void) = (int (*)(void))get(nvml, "nvmlInit_v2");
  int (*init_flags)(unsigned) = (int (*)(unsigned))get(nvml, "nvmlInitWithFlags");
  int (*stop)(void) = (int (*)(void))get(nvml, "nvmlShutdown");
  printf("nvmlInit %d\n", init());
  printf("nvmlInit_v2 %d\n", init_v2());
  printf("nvmlInitWithFlags %d\n", init_flags(1));
  printf("nvmlShutdown %d\n", stop());
  return 0;
}

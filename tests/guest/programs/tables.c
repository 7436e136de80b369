// SPDX-License-Identifier: Apache-2.0
// Asks the driver for the tables by which NVIDIA's programs initialise it, as they do. Arguments:
//   serve    the table of nvidia-cuda-mps-server, and run its server
//   runtime  the table with which each CUDA runtime begins
//   cupti    one of CUPTI's
//   none     no identifier
//   nvml     a table of NVML
//   nvmlInit nvmlInit, which succeeds without a GPU
//   version  cuDriverGetVersion
//   init     cuInit(0)
//   kill     SIGKILL
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct mps_table {
  size_t size;
  int (*run)(void);
};

static const unsigned char kMps[] = {0xa3, 0x92, 0xd3, 0x87, 0x1c, 0xf4, 0x7f, 0x4d,
                                     0x84, 0xb1, 0x71, 0x9b, 0x17, 0xae, 0xac, 0x8f};
static const unsigned char kRuntime[] = {0xf8, 0xcf, 0xf9, 0x51, 0x21, 0x46, 0x8b, 0x4e,
                                         0xb9, 0xe2, 0xfb, 0x46, 0x9e, 0x7c, 0x0d, 0xd9};
static const unsigned char kCupti[] = {0x7c, 0xb6, 0x3f, 0x9b, 0x9c, 0xa4, 0x8e, 0x42,
                                       0xa4, 0x84, 0xbe, 0xb6, 0x6e, 0x6a, 0xed, 0x7f};

static void* function(const char* library, const char* name) {
  void* handle = dlopen(library, RTLD_NOW);
  void* found = handle == NULL ? NULL : dlsym(handle, name);
  if (found == NULL) exit(9);
  return found;
}

static void ask(const char* step) {
  const int is_nvml = strncmp(step, "nvml", 4) == 0;
  const char* library = is_nvml ? "libnvidia-ml.so.1" : "libcuda.so.1";
  const void* table = NULL;
  int answer = 0;
  if (strcmp(step, "init") == 0) {
    answer = ((int (*)(unsigned))function(library, "cuInit"))(0);
  } else if (strcmp(step, "nvmlInit") == 0) {
    answer = ((int (*)(void))function(library, "nvmlInit"))();
  } else if (strcmp(step, "version") == 0) {
    int version = 0;
    answer = ((int (*)(int*))function(library, "cuDriverGetVersion"))(&version);
  } else {
    const char* name = is_nvml ? "nvmlInternalGetExportTable" : "cuGetExportTable";
    const unsigned char* id = strcmp(step, "serve") == 0     ? kMps
                              : strcmp(step, "runtime") == 0 ? kRuntime
                              : strcmp(step, "none") == 0    ? NULL
                                                             : kCupti;
    answer = ((int (*)(const void**, const void*))function(library, name))(&table, id);
  }
  printf("%s=%d\n", step, answer);
  if (table != NULL && strcmp(step, "serve") == 0) {
    printf("served=%d\n", ((const struct mps_table*)table)->run());
  }
  fflush(stdout);
}

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "kill") == 0) raise(SIGKILL);
    ask(argv[i]);
  }
  return 0;
}

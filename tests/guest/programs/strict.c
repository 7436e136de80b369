// SPDX-License-Identifier: Apache-2.0
// argv: ACTION NUMBER... Loads a library first (as any program does before it locks itself in,
// unless ACTION ends in "-early"), then allows these system calls alone; every other one kills the
// process ("kill") or fails with EPERM ("eperm"). Then asks the driver and NVML.
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "allow_only.h"

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  if (strstr(argv[1], "-loaded") != NULL && dlopen("libm.so.6", RTLD_NOW) == NULL) return 3;
  void* volatile heap = malloc(1);  // as in any program, there is a heap
  (void)heap;
  const int kill = strncmp(argv[1], "kill", 4) == 0;
  const unsigned answer = kill ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | EPERM;
  if (strncmp(argv[1], "none", 4) != 0 &&
      allow_only(argc - 2, (const char* const*)argv + 2, answer) != 0) {
    return 4;
  }
  if (write(1, "locked\n", 7) != 7) return 7;
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  int (*init)(unsigned) = driver ? (int (*)(unsigned))dlsym(driver, "cuInit") : NULL;
  const int code = init ? init(0) : -1;
  void* nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  int (*start)(void) = nvml ? (int (*)(void))dlsym(nvml, "nvmlInit_v2") : NULL;
  char text[64];
  const int length = snprintf(text, sizeof text, "cuInit=%d nvml=%d\n", code, start ? start() : -1);
  if (write(1, text, (size_t)length) != length) return 8;
  _exit(0);
}

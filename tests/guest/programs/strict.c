// SPDX-License-Identifier: Apache-2.0
// argv: ACTION NAME... Loads a library first (as any program does before it locks itself in, unless
// ACTION ends in "-early"), then allows the named system calls alone; every other one kills the
// process ("kill") or fails with EPERM ("eperm"). Then asks the driver and NVML.
#include <dlfcn.h>
#include <errno.h>
#include <seccomp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  if (strstr(argv[1], "-loaded") != NULL && dlopen("libm.so.6", RTLD_NOW) == NULL) return 3;
  const int kill = strncmp(argv[1], "kill", 4) == 0;
  if (strncmp(argv[1], "none", 4) != 0) {
    scmp_filter_ctx filter = seccomp_init(kill ? SCMP_ACT_KILL_PROCESS : SCMP_ACT_ERRNO(EPERM));
    if (filter == NULL) return 4;
    for (int i = 2; i < argc; ++i) {
      const int number = seccomp_syscall_resolve_name(argv[i]);
      if (number == __NR_SCMP_ERROR || seccomp_rule_add(filter, SCMP_ACT_ALLOW, number, 0) != 0) {
        fprintf(stderr, "no such system call: %s\n", argv[i]);
        return 5;
      }
    }
    if (seccomp_load(filter) != 0) return 6;
    // Its memory stays: free() might give pages back.
  }
  if (write(1, "locked\n", 7) != 7) return 7;
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  int (*init)(unsigned) = driver ? (int (*)(unsigned))dlsym(driver, "cuInit") : NULL;
  const int answer = init ? init(0) : -1;
  void* nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  int (*start)(void) = nvml ? (int (*)(void))dlsym(nvml, "nvmlInit_v2") : NULL;
  char text[64];
  const int length =
      snprintf(text, sizeof text, "cuInit=%d nvml=%d\n", answer, start ? start() : -1);
  if (write(1, text, (size_t)length) != length) return 8;
  _exit(0);
}

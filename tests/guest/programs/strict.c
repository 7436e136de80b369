// SPDX-License-Identifier: Apache-2.0
// argv: ACTION NUMBER... Loads a library first (as any program does before it locks itself in,
// unless ACTION ends in "-early"), then allows these system calls alone; every other one kills the
// process ("kill") or fails with EPERM ("eperm"). Then asks the driver and NVML.
#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

// From now on, every system call but those of these numbers gets this answer. Returns 0, or -1.
static int allow_only(int count, const char* const* numbers, unsigned answer) {
  struct sock_filter rows[512] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
  unsigned short length = 1;
  for (int i = 0; i < count && length < 510; ++i) {
    const unsigned number = (unsigned)atoi(numbers[i]);
    rows[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1);
    rows[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  }
  rows[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, answer);
  const struct sock_fprog program = {length, rows};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
  return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

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

// SPDX-License-Identifier: Apache-2.0
// refused: calls what container engines refuse by their default profiles, and prints each answer.
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

static void print(const char* call, long answer) {
  printf("%s %s\n", call, answer >= 0 ? "0" : strerrorname_np(errno));
}

int main(void) {
  print("mount", mount("none", "/tmp", "tmpfs", 0, ""));
  print("keyctl", syscall(SYS_keyctl, 0, -3, 0, 0, 0));
  print("bpf", syscall(SYS_bpf, 0, 0, 0));
  print("userfaultfd", syscall(SYS_userfaultfd, 0));
  print("swapoff", syscall(SYS_swapoff, "/none"));
  // Last, because it changes what is allowed.
  print("user_namespace", unshare(CLONE_NEWUSER));
  return 0;
}

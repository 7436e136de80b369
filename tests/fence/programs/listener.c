// SPDX-License-Identifier: Apache-2.0
// Installs a listener for a system call of its own, as container runtimes do
// (SECCOMP_RET_USER_NOTIF). Prints "listens", or the error.
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
  struct sock_filter words[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpgid, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const struct sock_fprog filter = {sizeof words / sizeof *words, words};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  const long made =
      syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter);
  puts(made >= 0 ? "listens" : strerrorname_np(errno));
  return 0;
}

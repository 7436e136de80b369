// SPDX-License-Identifier: Apache-2.0
// listener [PROGRAM...]: wants to be told of a system call, as container runtimes do
// (SECCOMP_RET_USER_NOTIF): "listens", or the error. A program is started in its place, and keeps
// the descriptor.
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int count, char** words) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_swapoff, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const struct sock_fprog filter = {sizeof code / sizeof *code, code};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  const long made =
      syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter);
  if (count > 1 && made >= 0) {
    fcntl((int)made, F_SETFD, 0);
    execv(words[1], words + 1);
  }
  puts(made >= 0 ? "listens" : strerrorname_np(errno));
  return 0;
}

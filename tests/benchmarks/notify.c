// SPDX-License-Identifier: Apache-2.0
// PROGRAM [ARG...]: starts the program under a seccomp filter that notifies this process of each
// execve, and lets each go on. This measures the cost that every such listener has.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;  // NOLINT(readability-redundant-declaration)
static int listener = -1;
static pthread_barrier_t listening;

/// Only this thread and the program have the filter, so that the first one can answer.
static void* start(void* words) {
  struct sock_filter rows[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_execve, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const struct sock_fprog filter = {sizeof rows / sizeof rows[0], rows};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0) {
    listener = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
                            &filter);
  }
  if (listener < 0) {
    perror("bench_notify");
    exit(1);
  }
  pthread_barrier_wait(&listening);
  char** arguments = words;
  pid_t child = -1;
  int status = 1;
  if (posix_spawnp(&child, arguments[0], NULL, NULL, arguments, environ) != 0 ||
      waitpid(child, &status, 0) != child) {
    perror(arguments[0]);
    exit(1);
  }
  exit(status == 0 ? 0 : 1);
}

int main(int count, char** words) {
  pthread_t thread;
  if (count < 2 || pthread_barrier_init(&listening, NULL, 2) != 0 ||
      pthread_create(&thread, NULL, start, words + 1) != 0) {
    return 1;
  }
  pthread_barrier_wait(&listening);
  for (;;) {
    struct seccomp_notif call;
    memset(&call, 0, sizeof call);  // the kernel asks for this
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call) != 0) continue;
    struct seccomp_notif_resp answer = {.id = call.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
    ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
  }
}

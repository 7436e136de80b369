// SPDX-License-Identifier: Apache-2.0
// A program that uses seccomp for itself. Prints the result of its calls, and then the answer to
// one of NVIDIA's requests.
//   all        one for all of its threads (SECCOMP_FILTER_FLAG_TSYNC)
//   refuse     one that answers EACCES to every ioctl
//   listener   one with SECCOMP_RET_USER_NOTIF
//   strict     SECCOMP_MODE_STRICT
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_barrier_t g_barrier;
static const char* g_other_thread;

static const char* ask(void) {
  errno = 0;
  ioctl(open("/dev/null", O_RDWR), 0xc04846d2, NULL);
  return strerrorname_np(errno);
}

// A filter that gives `answer` to every ioctl.
static int put_up(unsigned answer, unsigned long flags) {
  struct sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, answer),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const struct sock_fprog filter = {sizeof program / sizeof *program, program};
  return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &filter);
}

static void* other_thread(void* unused) {
  (void)unused;
  pthread_barrier_wait(&g_barrier);
  pthread_barrier_wait(&g_barrier);
  g_other_thread = ask();
  return NULL;
}

static void print_result(const char* what, int result) {
  printf("%s=%s ", what, result >= 0 ? "yes" : strerrorname_np(errno));
}

int main(int count, char** words) {
  if (count < 2) return 2;
  const char* what = words[1];
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (strcmp(what, "all") == 0) {
    pthread_t thread;
    pthread_barrier_init(&g_barrier, NULL, 2);
    pthread_create(&thread, NULL, other_thread, NULL);
    pthread_barrier_wait(&g_barrier);
    print_result(what, put_up(SECCOMP_RET_ALLOW, SECCOMP_FILTER_FLAG_TSYNC));
    pthread_barrier_wait(&g_barrier);
    pthread_join(thread, NULL);
    printf("other=%s ", g_other_thread);
  } else if (strcmp(what, "refuse") == 0) {
    print_result(what, put_up(SECCOMP_RET_ERRNO | EACCES, 0));
  } else if (strcmp(what, "listener") == 0) {
    // No process reads from it. After close(), the kernel answers ENOSYS.
    const int file = put_up(SECCOMP_RET_USER_NOTIF, SECCOMP_FILTER_FLAG_NEW_LISTENER);
    print_result(what, file);
    if (file >= 0) close(file);
  } else {
    // In a child, which may do no more than leave.
    int ends[2];
    if (pipe(ends) != 0) return 2;
    if (fork() == 0) {
      const int error = prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0 ? 0 : errno;
      write(ends[1], &error, sizeof error);
      syscall(SYS_exit, 0);
    }
    int error = 0;
    read(ends[0], &error, sizeof error);
    errno = error;
    print_result(what, error == 0 ? 0 : -1);
  }
  printf("request=%s\n", ask());
  return 0;
}

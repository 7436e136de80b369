// SPDX-License-Identifier: Apache-2.0
// Something else happens to a thread that asks for CUDA while the launcher is busy. argv: what, and
// the process ids of the launcher and of its keeper, or 0 and 0. A child of the program lets both
// go on after a while. KILL is no signal for `busy`, because the kernel takes the call back then.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
static int (*init)(unsigned);
static sigjmp_buf out;
static pid_t launcher;
static pid_t keeper;
// True if the process waits in a beacon, which is a getpid that the kernel holds.
static int waits(pid_t pid) {
  char text[64];
  snprintf(text, sizeof text, "/proc/%d/syscall", pid);
  const int file = open(text, O_RDONLY);
  const ssize_t size = read(file, text, sizeof text - 1);
  close(file);
  text[size < 0 ? 0 : size] = 0;
  return atoi(text) == SYS_getpid;
}
// Stops both for a while. A handler, or SIG_DFL, gets SIGALRM while the thread waits.
static void busy(void (*handler)(int)) {
  signal(SIGALRM, handler);
  if (launcher == 0) return;
  const pid_t asks = getpid();
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);  // for Yama: the child reads about its parent
  if (fork() == 0) {
    setsid();
    while (handler != SIG_IGN && getppid() == asks && !waits(asks)) usleep(1000);
    if (handler != SIG_IGN) kill(asks, SIGALRM);
    usleep(700000);
    kill(launcher, SIGCONT);  // first, because the keeper answers for a stopped launcher
    kill(keeper, SIGCONT);
    _exit(0);
  }
  kill(keeper, SIGSTOP);
  kill(launcher, SIGSTOP);
}
static void leave(int number) {
  (void)number;
  siglongjmp(out, 1);
}
static void fork_and_leave(int number) {
  (void)number;
  if (fork() == 0) {
    init(0);
    _exit(0);
  }
  siglongjmp(out, 1);
}
static void* ask_and_end(void* none) {
  init(0);
  _exit(0);
  return none;
}
int main(int count, char** words) {
  if (count < 4) return 9;
  launcher = atoi(words[2]);
  keeper = atoi(words[3]);
  init = (int (*)(unsigned))dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuInit");
  if (strcmp(words[1], "jump") == 0) {
    busy(leave);
    if (sigsetjmp(out, 1) == 0) init(0);
  } else if (strcmp(words[1], "jump-and-ask-again") == 0) {
    busy(leave);
    if (sigsetjmp(out, 1) == 0) init(0);
    init(0);
  } else if (strcmp(words[1], "fork-in-handler") == 0) {
    busy(fork_and_leave);
    if (sigsetjmp(out, 1) == 0) init(0);
  } else if (strcmp(words[1], "killed-by-alarm") == 0) {
    busy(SIG_DFL);
    init(0);
  } else if (strcmp(words[1], "threads") == 0) {
    busy(SIG_IGN);
    pthread_t one;
    pthread_create(&one, NULL, ask_and_end, NULL);
    usleep(30000);
    ask_and_end(NULL);
  } else {
    return 8;
  }
  return 0;
}

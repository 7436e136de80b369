// SPDX-License-Identifier: Apache-2.0
// Something else happens to a thread that asks for CUDA while the launcher is busy. argv: what, and
// the launcher's process id, or 0. A child of the program lets the launcher go on after a while.
// KILL is no signal for `busy`, because the kernel takes the call back then.
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
static int (*init)(unsigned);
static sigjmp_buf out;
static pid_t launcher;
static void busy(void) {
  if (launcher == 0) return;
  if (fork() == 0) {
    setsid();
    usleep(700000);
    kill(launcher, SIGCONT);
    _exit(0);
  }
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
static void soon(void (*handler)(int)) {
  struct itimerval once = {{0, 0}, {0, 30000}};
  signal(SIGALRM, handler);
  setitimer(ITIMER_REAL, &once, NULL);
}
static void* ask_and_end(void* none) {
  init(0);
  _exit(0);
  return none;
}
int main(int count, char** words) {
  if (count < 3) return 9;
  launcher = strcmp(words[2], "0") == 0 ? 0 : atoi(words[2]);
  init = (int (*)(unsigned))dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuInit");
  busy();
  if (strcmp(words[1], "jump") == 0) {
    soon(leave);
    if (sigsetjmp(out, 1) == 0) init(0);
  } else if (strcmp(words[1], "jump-and-ask-again") == 0) {
    soon(leave);
    if (sigsetjmp(out, 1) == 0) init(0);
    init(0);
  } else if (strcmp(words[1], "fork-in-handler") == 0) {
    soon(fork_and_leave);
    if (sigsetjmp(out, 1) == 0) init(0);
  } else if (strcmp(words[1], "killed-by-alarm") == 0) {
    soon(SIG_DFL);
    init(0);
  } else if (strcmp(words[1], "threads") == 0) {
    pthread_t one;
    pthread_create(&one, NULL, ask_and_end, NULL);
    usleep(30000);
    ask_and_end(NULL);
  } else {
    return 8;
  }
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// The fake driver with a fault: CG_SICK names the fault, and CG_ANSWER is cuInit's answer, by
// default 100.
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

// All other names return 999.
int driver_state(void) { return kSuccess; }

static int has(const char* illness) {
  const char* own = getenv("CG_SICK");
  return own != NULL && strcmp(own, illness) == 0;
}

static void sleep_for_ever(void) {
  for (;;) pause();
}

static void crash(void) {
  raise(SIGSEGV);
  abort();
}

// Stops this process when it exits, until a tracer that cudaguard cannot find releases it.
static void be_stuck(void) {
  int ready[2];
  if (pipe(ready) != 0) abort();
  const pid_t self = getpid();
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  if (fork() == 0) {
    setsid();
    if (fork() != 0) _exit(0);
    const long traced = ptrace(PTRACE_SEIZE, self, NULL, (void*)PTRACE_O_TRACEEXIT);
    for (int fd = 0; fd < 3; ++fd) close(fd);
    if (traced != 0 || write(ready[1], "y", 1) != 1) _exit(1);
    close(ready[1]);
    int status = 0;
    waitpid(self, &status, __WALL);
    sleep(15);
    _exit(0);
  }
  close(ready[1]);
  char answer = 0;
  if (read(ready[0], &answer, 1) != 1) abort();
}

// Forks a child that keeps this process's output open.
static void leave_a_child(void) {
  const pid_t child = fork();
  if (child != 0) {
    // The parent waits until the child has left the process group, which doctor kills as a whole.
    while (getpgid(child) != child) usleep(1000);
    return;
  }
  setsid();
  sleep(15);
  _exit(0);
}

__attribute__((constructor)) static void start(void) {
  if (has("hangs when loaded")) sleep_for_ever();
  if (has("crashes when loaded")) crash();
}

int cuInit(unsigned flags) {
  const char* answer = getenv("CG_ANSWER");
  (void)flags;
  if (has("hangs")) sleep_for_ever();
  if (has("ignores signals")) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    sleep_for_ever();
  }
  if (has("stuck")) {
    be_stuck();
    sleep_for_ever();
  }
  if (has("crashes")) crash();
  if (has("exits")) _exit(0);
  if (has("leaves a child")) leave_a_child();
  return answer == NULL ? kNoDevice : atoi(answer);
}

// SPDX-License-Identifier: Apache-2.0
// Counts how child processes end, by exit code and by signal.
#ifndef CUDAGUARD_TESTS_HOSTS_TALLY_H
#define CUDAGUARD_TESTS_HOSTS_TALLY_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kMostHung = 4 };

struct Tally {
  int exits[256];
  int signals[128];
};

// An alarm ends a child that waits permanently. After a few of them, more rounds would show nothing
// new.
static inline int tally_is_over(const struct Tally* tally) {
  return tally->signals[SIGALRM] >= kMostHung;
}

static inline void tally_child(struct Tally* tally, pid_t child) {
  int status;
  if (child < 0 || waitpid(child, &status, 0) != child) {
    perror("tally_child");
    exit(1);
  }
  if (WIFSIGNALED(status))
    ++tally->signals[WTERMSIG(status)];
  else
    ++tally->exits[WEXITSTATUS(status)];
}

static inline void tally_print(const struct Tally* tally) {
  for (int i = 0; i < 256; ++i)
    if (tally->exits[i]) printf("exit %d: %d\n", i, tally->exits[i]);
  for (int i = 0; i < 128; ++i)
    if (tally->signals[i]) printf("signal %d: %d\n", i, tally->signals[i]);
  fflush(stdout);
}

#endif

// SPDX-License-Identifier: Apache-2.0
// Runs sleep in a child. argv: flags of clone, and the seconds.
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int count, char** words) {
  if (count < 3) return 9;
  const long pid = syscall(SYS_clone, atol(words[1]) | SIGCHLD, 0, 0, 0, 0);
  if (pid == 0) execlp("sleep", "sleep", words[2], NULL);
  int status;
  while (waitpid(pid, &status, __WALL) < 0) {
  }
  return 0;
}

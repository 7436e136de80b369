// SPDX-License-Identifier: Apache-2.0
// A library whose constructor takes a while, and then ends the process in the way that WHAT names.
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
__attribute__((constructor)) static void slow(void) {
  const char* what = getenv("WHAT");
  if (what == NULL) return;
  struct timespec time = {0, 300000000};
  nanosleep(&time, NULL);
  const clock_t end = clock() + CLOCKS_PER_SEC / 10;
  while (clock() < end) {
  }
  unsetenv("WHAT");
  if (*what == 'e') _exit(0);
  if (*what == 'k') kill(getpid(), SIGKILL);
  if (*what == 'x') execl("/bin/true", "true", NULL);
}

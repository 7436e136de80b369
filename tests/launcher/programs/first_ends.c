// SPDX-License-Identifier: Apache-2.0
// The first thread ends. Another one starts argv as a child, and waits for it.
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static char** g_words;
static void* run(void* unused) {
  int status = 1;
  usleep(50000);
  const pid_t child = fork();
  if (child == 0) {
    execv(g_words[0], g_words);
    _exit(9);
  }
  waitpid(child, &status, 0);
  _exit(status != 0);
  return unused;
}
int main(int argc, char** argv) {
  (void)argc;
  g_words = argv + 1;
  pthread_t thread;
  if (pthread_create(&thread, NULL, run, NULL) != 0) return 8;
  pthread_exit(NULL);
}

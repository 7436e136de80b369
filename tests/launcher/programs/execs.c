// SPDX-License-Identifier: Apache-2.0
// A thread executes argv after another thread's vfork.
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static char** g_words;
static void* run(void* unused) {
  execv(g_words[0], g_words);
  return unused;
}
int main(int argc, char** argv) {
  int status = argc;
  pid_t child = vfork();
  if (child == 0) {
    execl("/bin/true", "true", NULL);
    _exit(9);
  }
  if (waitpid(child, &status, 0) != child || status != 0) return 8;
  g_words = argv + 1;
  pthread_t thread;
  pthread_create(&thread, NULL, run, NULL);
  for (;;) pause();
}

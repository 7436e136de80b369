// SPDX-License-Identifier: Apache-2.0
// The first thread ends. Another one starts argv as a child, and waits for it. Without argv it asks
// for CUDA itself.
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static char** g_words;
static void* run(void* unused) {
  int status = 1;
  usleep(50000);
  if (g_words[0] == NULL) {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned) = NULL;
    if (driver != NULL) *(void**)&init = dlsym(driver, "cuInit");
    const int answer = init == NULL ? -1 : init(0);
    usleep(500000);
    _exit(answer < 0);
  }
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

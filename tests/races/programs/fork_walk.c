// SPDX-License-Identifier: Apache-2.0
// fork_walk PLUGIN COUNT THREADS: forks while it has this many threads. The child starts threads
// that load and unload a library, and asks for the driver with RTLD_NOLOAD meanwhile, each at least
// COUNT times. Prints how the child ended.
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static const char* plugin;
static atomic_int loads;
static atomic_int ends;

static void* load_and_unload(void* unused) {
  while (!ends) {
    void* handle = dlopen(plugin, RTLD_NOW);
    if (handle == NULL) _exit(3);
    dlclose(handle);
    ++loads;
  }
  return unused;
}

static void* wait_long(void* unused) {
  for (;;) pause();
  return unused;
}

static void ask(void) {
  if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) != NULL) _exit(4);
}

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  plugin = argv[1];
  if (dlopen("libm.so.6", RTLD_NOW) == NULL) return 2;
  for (int i = 1; i < atoi(argv[3]); ++i) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, wait_long, NULL) != 0) return 2;
  }
  const pid_t child = fork();
  if (child == 0) {
    ask();
    pthread_t threads[2];
    for (int i = 0; i < 2; ++i) {
      if (pthread_create(&threads[i], NULL, load_and_unload, NULL) != 0) _exit(5);
    }
    // Both are at work all the time, on one processor, too.
    for (int i = 0; i < atoi(argv[2]) || loads < atoi(argv[2]); ++i) ask();
    ends = 1;
    for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
    _exit(0);
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child) return 2;
  printf("child %d %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0, WEXITSTATUS(status));
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// Forks COUNT times while four threads load, look up and unload libraries. Each child asks the
// driver and NVML, and is killed if it is still there after kChildSeconds. argv: COUNT, the answer
// that the driver must give, and how the child comes to the driver: "ready" (loaded before the
// fork) or "load". With "load" some children stop or hang in ld.so, unguarded as guarded: glibc
// does not keep its list of libraries whole across a fork in the midst of another thread's dlopen.
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kChildSeconds = 15, kLoadsPerFork = 8 };

static atomic_int g_stop;
static atomic_long g_loads;

typedef int (*init_function)(unsigned);

static init_function find(const char* library, const char* name) {
  void* handle = dlopen(library, RTLD_NOW);
  return handle ? (init_function)dlsym(handle, name) : NULL;
}

static int ask(init_function driver, init_function nvml) {
  if (driver == NULL || nvml == NULL) return -1;
  const int started = nvml(0);
  return started == 0 || started == 9 ? driver(0) : -1;  // 9: guarded
}

static void* load(void* unused) {
  static const char* const kNames[] = {"libm.so.6", "libcuda.so.1", "libcg-none.so",
                                       "libnvidia-ml.so.1", "libnvidia-opencl.so.1"};
  for (unsigned i = 0; !atomic_load(&g_stop); ++i) {
    void* handle = dlopen(kNames[i % 5], RTLD_NOW);
    if (handle != NULL) {
      dlsym(handle, "cuInit");
      dlsym(handle, "cg_no_such_symbol");
      dlclose(handle);
    }
    dlerror();
    atomic_fetch_add(&g_loads, 1);
  }
  return unused;
}

int main(int argc, char** argv) {
  const int count = argc > 1 ? atoi(argv[1]) : 300;
  const int expected = argc > 2 ? atoi(argv[2]) : 100;
  const int ready = argc > 3 && strcmp(argv[3], "ready") == 0;
  init_function driver = NULL;
  init_function nvml = NULL;
  if (ready) {
    driver = find("libcuda.so.1", "cuInit");
    nvml = find("libnvidia-ml.so.1", "nvmlInit_v2");
    printf("parent=%d\n", ask(driver, nvml));
    fflush(stdout);
  }
  pthread_t threads[4];
  for (int i = 0; i < 4; ++i) pthread_create(&threads[i], NULL, load, NULL);
  int right = 0;
  int wrong = 0;
  int hung = 0;
  for (int i = 0; i < count && hung < 3; ++i) {
    // However busy the machine is: the threads are at work between any two forks.
    while (atomic_load(&g_loads) < (long)kLoadsPerFork * (i + 1)) sched_yield();
    const pid_t child = fork();
    if (child == 0) {
      alarm(kChildSeconds);
      if (!ready) {
        driver = find("libcuda.so.1", "cuInit");
        nvml = find("libnvidia-ml.so.1", "nvmlInit_v2");
      }
      const int answer = ask(driver, nvml);
      _exit(answer == expected ? 7 : answer < 0 ? 9 : 8);
    }
    int status = 0;
    waitpid(child, &status, 0);
    right += WIFEXITED(status) && WEXITSTATUS(status) == 7;
    wrong += WIFEXITED(status) && WEXITSTATUS(status) == 8;
    hung += WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
  }
  atomic_store(&g_stop, 1);
  for (int i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
  printf("right=%d\nwrong=%d\nloads=%ld\nown=%d\n", right, wrong, atomic_load(&g_loads),
         (int)getpid());
  return 0;
}

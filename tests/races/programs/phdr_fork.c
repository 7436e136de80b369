// SPDX-License-Identifier: Apache-2.0
// phdr_fork HOW FORKS SECONDS [STEP...] -- STEP...: does the first steps. Other threads are inside
// dl_iterate_phdr when it forks. Each child does the steps after "--", and is killed after SECONDS.
// HOW is "block": a thread stays in its callback, so that every child inherits ld.so's lock locked;
// "storm": two threads call dl_iterate_phdr all the time; "none". Prints "ok N hung N other N". If
// FORKS is -1, the process itself does the steps and ends with the result.
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef LINKED
extern int cuInit(unsigned);
extern int cuGetProcAddress_v2(const char*, void**, int, unsigned long long, int*);
extern int nvmlInit_v2(void);
extern int cudaSetDevice(int);
#endif

static atomic_int inside;
static void* plugin;

static int stay(struct dl_phdr_info* object, size_t size, void* data) {
  atomic_store(&inside, 1);
  for (;;) pause();
  return object == NULL || size == 0 || data == NULL;
}

static int count(struct dl_phdr_info* object, size_t size, void* data) {
  *(volatile long*)data += object != NULL && size != 0;
  atomic_store(&inside, 1);
  return 0;
}

static void* blocked(void* unused) {
  dl_iterate_phdr(stay, NULL);
  return unused;
}

static void* storming(void* unused) {
  long calls = 0;
  for (;;) dl_iterate_phdr(count, &calls);
  return unused;
}

/* Returns 0 if the step did what it does in a program without the guard, or was denied. */
static int step(const char* what) {
  const char* name = strchr(what, ':') + 1;
  if (strncmp(what, "open:", 5) == 0) return dlopen(name, RTLD_NOW) == NULL;
  if (strncmp(what, "fail:", 5) == 0) return dlopen(name, RTLD_NOW) != NULL;
  if (strncmp(what, "noload:", 7) == 0) return dlopen(name, RTLD_NOW | RTLD_NOLOAD) == NULL;
  if (strncmp(what, "absent:", 7) == 0) return dlopen(name, RTLD_NOW | RTLD_NOLOAD) != NULL;
  if (strncmp(what, "base:", 5) == 0) return dlmopen(LM_ID_BASE, name, RTLD_NOW) == NULL;
  if (strncmp(what, "null:", 5) == 0) return dlopen(NULL, RTLD_NOW) == NULL;
  if (strncmp(what, "plugin:", 7) == 0) return (plugin = dlopen(name, RTLD_NOW)) == NULL;
  if (strncmp(what, "ask:", 4) == 0) {
    int (*ask)(void) = (int (*)(void))dlsym(plugin, "ask");
    return ask == NULL || ask() != atoi(name);
  }
  if (strncmp(what, "phdr:", 5) == 0) {
    long calls = 0;
    return dl_iterate_phdr(count, &calls);
  }
#ifdef LINKED
  if (strncmp(what, "cuda:", 5) == 0) return cuInit(0) != atoi(name);
  if (strncmp(what, "nvml:", 5) == 0) return nvmlInit_v2() != atoi(name);
  if (strncmp(what, "runtime:", 8) == 0) return cudaSetDevice(0) != atoi(name);
  if (strncmp(what, "address:", 8) == 0) {
    void* found = NULL;
    int status = 0;
    return cuGetProcAddress_v2("cuInit", &found, 12000, 0, &status) != atoi(name);
  }
#endif
  return 99;
}

static int do_steps(char** steps) {
  int result = 0;
  for (; *steps != NULL && result == 0; ++steps) result = step(*steps);
  return result;
}

int main(int argc, char** argv) {
  if (argc < 5) return 96;
  const char* how = argv[1];
  const int forks = atoi(argv[2]);
  const unsigned seconds = (unsigned)atoi(argv[3]);
  int first = 4;
  for (; strcmp(argv[first], "--") != 0; ++first) {
    if (step(argv[first]) != 0) return 97;
  }
  pthread_t thread;
  if (strcmp(how, "block") == 0) pthread_create(&thread, NULL, blocked, NULL);
  for (int i = 0; i < 2 && strcmp(how, "storm") == 0; ++i) {
    pthread_create(&thread, NULL, storming, NULL);
  }
  while (strcmp(how, "none") != 0 && atomic_load(&inside) == 0) usleep(100);
  if (forks < 0) {
    alarm(seconds);
    _exit(do_steps(argv + first + 1));
  }
  int ok = 0, hung = 0, other = 0;
  for (int i = 0; i < forks && hung < 5; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(seconds);
      _exit(do_steps(argv + first + 1));
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) {
      ++hung;
    } else if (status == 0) {
      ++ok;
    } else {
      ++other;
    }
  }
  printf("ok %d hung %d other %d\n", ok, hung, other);
  fflush(stdout);
  _exit(0); /* without destructors, whose ld.so waits for the thread */
}

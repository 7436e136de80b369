// SPDX-License-Identifier: Apache-2.0
// Forks while threads load the driver and NVML for the first time.
//   fork_waits ROUNDS FORKS
// In each of ROUNDS processes, four threads load, initialise and unload while the process forks
// FORKS children. Each child does the same once. Prints "ended DONE DIED STUCK" for each process:
// how many children finished, died, or were still running after a second. Before that, it prints
// "waits WORD FILE" for each child that waits on a word (futex): the word's place, and the mapped
// file or "none". Many children wait or die in ld.so, because after a fork during another thread's
// dlopen glibc's locks and its list of libraries may be inconsistent.
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kThreads = 4, kWaitMilliseconds = 1000, kMostForks = 64 };

static atomic_int g_stop;

static void pause_milliseconds(int milliseconds) {
  const struct timespec time = {0, milliseconds * 1000000L};
  nanosleep(&time, NULL);
}

static void attempt(const char* library, const char* name) {
  void* handle = dlopen(library, RTLD_NOW);
  int (*init)(unsigned) = handle == NULL ? NULL : (int (*)(unsigned))dlsym(handle, name);
  if (init != NULL) init(0);
  if (handle != NULL) dlclose(handle);
}

static void* load(void* unused) {
  while (!atomic_load(&g_stop)) {
    attempt("libcuda.so.1", "cuInit");
    attempt("libnvidia-ml.so.1", "nvmlInit_v2");
  }
  return unused;
}

// Finds the mapped file that holds the address, or the last file before it, which has the words of
// a library's .bss.
static void print_wait(pid_t child, unsigned long word) {
  char path[64];
  char line[4400];
  char name[4400] = "none";
  unsigned long last_end = 0;
  snprintf(path, sizeof path, "/proc/%d/maps", (int)child);
  FILE* maps = fopen(path, "r");
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
    char* end = NULL;
    const unsigned long from = strtoul(line, &end, 16);
    const unsigned long to = strtoul(end + 1, NULL, 16);
    const char* file = strchr(line, '/');
    if (file != NULL) {
      snprintf(name, sizeof name, "%s", file);
      name[strcspn(name, "\n")] = '\0';
    } else if (from != last_end) {
      snprintf(name, sizeof name, "none");
    }
    last_end = to;
    if (word >= from && word < to) break;
  }
  if (maps != NULL) fclose(maps);
  printf("waits %#lx %s\n", word, name);
}

static void look_at(pid_t child) {
  char path[64];
  long number = -1;
  unsigned long word = 0;
  snprintf(path, sizeof path, "/proc/%d/syscall", (int)child);
  FILE* file = fopen(path, "r");
  if (file != NULL && fscanf(file, "%ld %lx", &number, &word) == 2 && number == SYS_futex) {
    print_wait(child, word);
  }
  if (file != NULL) fclose(file);
}

// Counts children that end in `done` (as they should) and in `died`. Returns how many do not end.
static int wait_for(pid_t* children, int count, int* done, int* died) {
  int left = count;
  for (int time = 0; time < kWaitMilliseconds && left > 0; ++time) {
    for (int i = 0; i < count; ++i) {
      int status = 0;
      if (children[i] == 0 || waitpid(children[i], &status, WNOHANG) == 0) continue;
      *(WIFEXITED(status) && WEXITSTATUS(status) == 0 ? done : died) += 1;
      children[i] = 0;
      --left;
    }
    pause_milliseconds(1);
  }
  for (int i = 0; i < count; ++i) {
    if (children[i] == 0) continue;
    look_at(children[i]);
    kill(children[i], SIGKILL);
    waitpid(children[i], NULL, 0);
  }
  return left;
}

static void one_round(int forks) {
  pthread_t threads[kThreads];
  pid_t children[kMostForks];
  int done = 0;
  int died = 0;
  for (int i = 0; i < kThreads; ++i) pthread_create(&threads[i], NULL, load, NULL);
  for (int i = 0; i < forks; ++i) {
    children[i] = fork();
    if (children[i] == 0) {
      attempt("libcuda.so.1", "cuInit");
      attempt("libnvidia-ml.so.1", "nvmlInit_v2");
      _exit(0);
    }
  }
  const int stuck = wait_for(children, forks, &done, &died);
  printf("ended %d %d %d\n", done, died, stuck);
  fflush(stdout);
  _exit(0);
}

int main(int argc, char** argv) {
  const int rounds = argc == 3 ? atoi(argv[1]) : 0;
  const int forks = argc == 3 ? atoi(argv[2]) : 0;
  if (rounds < 1 || forks < 1 || forks > kMostForks) return 2;
  for (int i = 0; i < rounds; ++i) {
    const pid_t round = fork();
    if (round == 0) one_round(forks);
    waitpid(round, NULL, 0);
  }
  return 0;
}

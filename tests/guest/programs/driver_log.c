// SPDX-License-Identifier: Apache-2.0
// Uses the driver's log, by the declarations of cuda.h. Each argument is a step; most of them print
// what they got. The driver is loaded at run time.
//
//   init            cuInit
//   mark            cuLogsCurrent into the iterator
//   dump:N, all:N   cuLogsDumpToMemory of N bytes, with the iterator and without it
//   file:PATH       cuLogsDumpToFile with the iterator
//   add, remove:I   a callback, and the end of the I-th one (from 0)
//   fork            the rest of the steps in a child, and what it ended with
//   signal          a handler makes all calls
//   storm           handlers interrupt all calls 2000 times
//   bad             every call with wrong arguments
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

typedef void (*Callback)(void* data, int level, char* message, size_t length);
static int (*init)(unsigned);
static int (*current)(unsigned*, unsigned);
static int (*to_memory)(unsigned*, char*, size_t*, unsigned);
static int (*to_file)(unsigned*, const char*, unsigned);
static int (*add)(Callback, void*, void**);
static int (*drop)(void*);

static unsigned iterator;
static void* handles[64];
static int handle_count;
static volatile sig_atomic_t handled;

static void called(void* data, int level, char* message, size_t length) {
  printf("called=%d,%d,%d,%s\n", *(int*)data, level, strlen(message) == length, message);
  message[0] = '!';  // it is the callback's copy
}

static void calls_init(void* data, int level, char* message, size_t length) {
  (void)data, (void)level, (void)message, (void)length;
  init(0);
}

static void quiet(void* data, int level, char* message, size_t length) {
  (void)level;
  if (data != handles || strlen(message) != length) abort();
}

static void dump(unsigned* from, size_t room) {
  char buffer[4096];
  memset(buffer, '#', sizeof buffer);
  size_t size = room;
  const int result = to_memory(from, buffer, &size, 0);
  size_t kept = 0;
  while (room + kept < sizeof buffer && buffer[room + kept] == '#') ++kept;
  printf("dump=%d,%zu,%s,%s\n", result, size, room + kept == sizeof buffer ? "kept" : "overwritten",
         room == 0 ? "" : buffer);
}

static void all_calls(void) {
  char buffer[1024];
  size_t size = sizeof buffer;
  unsigned from = 0;
  void* handle = NULL;
  if (add(quiet, handles, &handle) != 0) abort();
  if (init(0) != 100 || current(&from, 0) != 0 || from == 0) abort();
  if (to_memory(NULL, buffer, &size, 0) != 0 || strlen(buffer) != size || size == 0) abort();
  if (drop(handle) != 0 || drop(handle) != 1) abort();
}

static void handler(int number) {
  (void)number;
  all_calls();
  ++handled;
}

static void storm(void) {
  struct sigaction action = {.sa_handler = handler};
  sigaction(SIGALRM, &action, NULL);
  const struct itimerval often = {{0, 50}, {0, 50}}, never = {{0, 0}, {0, 0}};
  setitimer(ITIMER_REAL, &often, NULL);
  while (handled < 2000) all_calls();
  setitimer(ITIMER_REAL, &never, NULL);
  puts("storm=done");
}

static void bad(void) {
  char buffer[8];
  size_t size = sizeof buffer;
  unsigned from = 0;
  void* handle = NULL;
  printf("bad=%d%d%d%d%d%d%d%d%d%d\n", current(NULL, 0), current(&from, 1),
         to_memory(NULL, NULL, &size, 0), to_memory(NULL, buffer, NULL, 0),
         to_memory(NULL, buffer, &size, 1), to_file(NULL, NULL, 0), to_file(NULL, "/dev/null", 1),
         to_file(NULL, "/nowhere/file", 0), add(NULL, NULL, &handle), drop(NULL));
}

static void* find(void* driver, const char* name) {
  void* found = dlsym(driver, name);
  if (found == NULL) printf("no %s\n", name), exit(3);
  return found;
}

int main(int count, char** words) {
  static int numbers[64];
  setvbuf(stdout, NULL, _IOLBF, 0);
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == NULL) return 2;
  init = (int (*)(unsigned))find(driver, "cuInit");
  if (count > 1 && strcmp(words[1], "control") == 0) return printf("init=%d\n", init(0)), 0;
  current = (int (*)(unsigned*, unsigned))find(driver, "cuLogsCurrent");
  to_memory = (int (*)(unsigned*, char*, size_t*, unsigned))find(driver, "cuLogsDumpToMemory");
  to_file = (int (*)(unsigned*, const char*, unsigned))find(driver, "cuLogsDumpToFile");
  add = (int (*)(Callback, void*, void**))find(driver, "cuLogsRegisterCallback");
  drop = (int (*)(void*))find(driver, "cuLogsUnregisterCallback");
  for (int i = 1; i < count; ++i) {
    const char* word = words[i];
    const char* colon = strchr(word, ':');
    errno = 77;
    if (strcmp(word, "init") == 0) {
      printf("init=%d,%d\n", init(0), errno);
    } else if (strcmp(word, "mark") == 0) {
      printf("mark=%d\n", current(&iterator, 0));
    } else if (strncmp(word, "dump:", 5) == 0) {
      dump(&iterator, (size_t)atoi(colon + 1));
    } else if (strncmp(word, "all:", 4) == 0) {
      dump(NULL, (size_t)atoi(colon + 1));
    } else if (strncmp(word, "file:", 5) == 0) {
      printf("file=%d,%d\n", to_file(&iterator, colon + 1, 0), errno);
    } else if (strcmp(word, "add") == 0) {
      numbers[handle_count] = handle_count;
      printf("add=%d\n", add(called, &numbers[handle_count], &handles[handle_count]));
      ++handle_count;
    } else if (strcmp(word, "add-without-handle") == 0) {
      printf("add=%d\n", add(calls_init, NULL, NULL));
    } else if (strncmp(word, "remove:", 7) == 0) {
      printf("remove=%d\n", drop(handles[atoi(colon + 1)]));
    } else if (strcmp(word, "fork") == 0) {
      const pid_t child = fork();
      if (child != 0) {
        int status = 0;
        waitpid(child, &status, 0);
        printf("child=%d\n", status);
        return 0;
      }
    } else if (strcmp(word, "signal") == 0) {
      signal(SIGUSR1, handler);
      raise(SIGUSR1);
      printf("handled=%d\n", (int)handled);
    } else if (strcmp(word, "storm") == 0) {
      storm();
    } else if (strcmp(word, "bad") == 0) {
      bad();
    } else {
      return 4;
    }
  }
  return 0;
}

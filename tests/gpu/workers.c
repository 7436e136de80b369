// SPDX-License-Identifier: Apache-2.0
// A trainer and its workers. Each worker makes a context on device 0, as environment workers do
// that import a framework. A line on stdin starts each step, and a line on stdout answers it:
//   1 the trainer makes its context   2 the workers make theirs   3 all end
//   workers=24   how=spawn|fork (forked before the trainer's first CUDA call)
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include "gpu.h"

extern char** environ;

enum { kMostWorkers = 256 };

// cuInit's answer, and the context's answer or -1 if there was no such call.
struct answer {
  int init, context;
};

static struct answer make_context(void) {
  struct answer result = {-1, -1};
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL) return result;
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
  int (*get)(int*, int) = (int (*)(int*, int))dlsym(library, "cuDeviceGet");
  int (*retain)(void**, int) = (int (*)(void**, int))dlsym(library, "cuDevicePrimaryCtxRetain");
  int device = 0;
  void* context = NULL;
  if (init == NULL || get == NULL || retain == NULL) return result;
  result.init = init(0);
  if (result.init == 0) {
    result.context = get(&device, 0);
    if (result.context == 0) result.context = retain(&context, device);
  }
  return result;
}

static int next_step(void) {
  char line[16];
  return fgets(line, sizeof line, stdin) != NULL;
}

// A worker prints its answers and stays until `stay` is closed.
static void work(int report, int stay) {
  char letter;
  const struct answer result = make_context();
  const ssize_t written = write(report, &result, sizeof result);
  (void)written;
  while (read(stay, &letter, 1) > 0) {
  }
}

static pid_t spawn_worker(int report, int stay) {
  char first[24];
  char second[16];
  snprintf(first, sizeof first, "report=%d", report);
  snprintf(second, sizeof second, "stay=%d", stay);
  char* arguments[] = {g_argv[0], (char*)"worker", first, second, NULL};
  pid_t child = -1;
  return posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ) == 0 ? child : -1;
}

int main(int argc, char** argv) {
  g_argc = argc;
  g_argv = argv;
  if (argc > 1 && strcmp(argv[1], "worker") == 0) {
    work(number("report", 1), number("stay", 0));
    return 0;
  }
  const int count = number("workers", 24) > kMostWorkers ? kMostWorkers : number("workers", 24);
  const int forked = is("how", "fork");
  int report[2];
  int stay[2];
  int go[2];
  if (pipe(report) != 0 || pipe(stay) != 0 || pipe(go) != 0) return 1;
  for (int i = 0; forked && i < count; ++i) {
    if (fork() == 0) {
      char letter;
      close(stay[1]);
      close(go[1]);
      while (read(go[0], &letter, 1) > 0) {
      }
      work(report[1], stay[0]);
      _exit(0);
    }
  }
  if (!next_step()) return 1;
  struct answer result = make_context();
  printf("trainer.cuInit=%d trainer.context=%d\n", result.init, result.context);
  fflush(stdout);
  if (!next_step()) return 1;
  int started = count;
  if (forked) {
    close(go[1]);
  } else {
    // If a spawned worker held the writing end, it would wait permanently.
    fcntl(stay[1], F_SETFD, FD_CLOEXEC);
    started = 0;
    for (int i = 0; i < count; ++i) started += spawn_worker(report[1], stay[0]) > 0;
  }
  int inits = 0;
  int contexts = 0;
  int refused = 0;
  for (int i = 0; i < started; ++i) {
    if (read(report[0], &result, sizeof result) != (ssize_t)sizeof result) break;
    inits += result.init == 0;
    contexts += result.context == 0;
    refused += result.init == 100;
  }
  printf("started=%d inits=%d contexts=%d refused=%d\n", started, inits, contexts, refused);
  fflush(stdout);
  next_step();
  close(stay[1]);
  while (wait(NULL) > 0) {
  }
  printf("ended=1\n");
  return 0;
}

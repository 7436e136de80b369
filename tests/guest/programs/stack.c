// SPDX-License-Identifier: Apache-2.0
// How much stack dlopen(NAME) takes, as the first request of this process.
//   stack paint NAME     on a thread's stack that was painted before: prints used=BYTES
//   stack signal NAME BYTES   in a signal handler, on an alternate stack with so much beside the
//                             signal's own frame: prints opened=0 or 1
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

enum { kStack = 256 * 1024, kPage = 4096, kPaint = 0xa5 };

static const char* g_name;
static const char* g_inside;  // of the frame that calls dlopen
static volatile int g_opened;

static void* open_it(void* unused) {
  g_inside = __builtin_frame_address(0);
  g_opened = dlopen(g_name, RTLD_NOW) != NULL;
  return unused;
}

static void on_signal(int number) {
  (void)number;
  g_opened = dlopen(g_name, RTLD_NOW) != NULL;
}

// The signal's frame holds the processor's vector registers: on each machine another size.
static size_t signal_frame(void) {
  const unsigned long frame = getauxval(51);  // AT_MINSIGSTKSZ
  return frame != 0 ? frame : 3376;           // AVX-512's
}

// With an inaccessible page below it.
static char* new_stack(size_t size) {
  char* stack =
      mmap(NULL, size + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (stack == MAP_FAILED || mprotect(stack, kPage, PROT_NONE) != 0) return NULL;
  return stack + kPage;
}

int main(int argc, char** argv) {
  const int paint = argc == 3 && strcmp(argv[1], "paint") == 0;
  if (!paint && argc != 4) return 2;
  g_name = argv[2];
  const size_t size = paint ? kStack : signal_frame() + strtoul(argv[3], NULL, 10);
  char* stack = new_stack(size);
  if (stack == NULL) return 3;
  if (paint) {
    pthread_attr_t attributes;
    pthread_t thread;
    memset(stack, kPaint, kStack);
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, stack, kStack);
    if (pthread_create(&thread, &attributes, open_it, NULL) != 0) return 4;
    pthread_join(thread, NULL);
    const char* deepest = stack;
    while (*deepest == (char)kPaint) ++deepest;
    printf("opened=%d\nused=%zd\n", g_opened, g_inside - deepest);
    return 0;
  }
  const stack_t alternate = {.ss_sp = stack, .ss_size = size};
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_signal;
  action.sa_flags = SA_ONSTACK;
  if (sigaltstack(&alternate, NULL) != 0 || sigaction(SIGUSR1, &action, NULL) != 0) return 5;
  raise(SIGUSR1);
  printf("opened=%d\n", g_opened);
  return 0;
}

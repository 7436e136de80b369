// SPDX-License-Identifier: Apache-2.0
// stack NAME: prints opened=0 or 1, and used=BYTES: how much of a thread's stack, which was painted
// before, dlopen(NAME) takes as the first request of this process.
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { kStack = 256 * 1024, kPaint = 0xa5 };

static const char* g_name;
static const char* g_inside;  // of the frame that calls dlopen
static volatile int g_opened;

static void* open_it(void* unused) {
  g_inside = __builtin_frame_address(0);
  g_opened = dlopen(g_name, RTLD_NOW) != NULL;
  return unused;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  g_name = argv[1];
  char* stack = mmap(NULL, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (stack == MAP_FAILED) return 3;
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

// SPDX-License-Identifier: Apache-2.0
// Compiled by test_sanitizers.py with one sanitizer each: loads the driver in four threads, asks
// it, loads something that is not there, and prints the answers. "bug" ends with an error of the
// kind the sanitizer must find, to prove that it is awake.
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int g_shared;
static int g_answers[4];

static void* ask(void* index) {
  void* handle = dlopen("libcuda.so.1", RTLD_NOW);
  int (*init)(unsigned) = handle ? (int (*)(unsigned))dlsym(handle, "cuInit") : NULL;
  *(int*)index = init ? init(0) : -1;
  if (dlopen("libcg-none.so", RTLD_NOW) != NULL || dlerror() == NULL) *(int*)index = -2;
  if (handle) dlclose(handle);
  return NULL;
}

static void* race(void* unused) {
  for (int i = 0; i < 1000; ++i) ++g_shared;
  return unused;
}

static void in_threads(void* (*work)(void*)) {
  pthread_t threads[4];
  for (int i = 0; i < 4; ++i) pthread_create(&threads[i], NULL, work, &g_answers[i]);
  for (int i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
}

int main(int argc, char** argv) {
  in_threads(ask);
  void* handle = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  int (*init)(void) = handle ? (int (*)(void))dlsym(handle, "nvmlInit_v2") : NULL;
  printf("cuInit=%d,%d,%d,%d nvml=%d\n", g_answers[0], g_answers[1], g_answers[2], g_answers[3],
         init ? init() : -1);
  fflush(stdout);
  if (argc > 1 && strcmp(argv[1], "bug") == 0) {
    in_threads(race);               // TSan
    volatile int big = 2147483647;  // UBSan
    volatile int sum = big + argc;
    char* volatile block = malloc(8);  // ASan
    printf("%d %d %d\n", sum, g_shared, block[argc + 6]);
    if (block[argc] != 0) puts("set");  // MSan
    char* volatile leak = malloc(123);  // LSan
    leak = NULL;
    (void)leak;
  }
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// asks_while_unloading LIBRARY: calls cuInit while two threads open and close the library.
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

int cuInit(unsigned flags);

static atomic_int g_running = 2;

static void* open_and_close(void* path) {
  for (int i = 0; i < 20000; ++i) {
    void* handle = dlopen(path, RTLD_NOW);
    if (handle != NULL) dlclose(handle);
  }
  atomic_fetch_sub(&g_running, 1);
  return NULL;
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  pthread_t threads[2];
  for (int i = 0; i < 2; ++i) pthread_create(&threads[i], NULL, open_and_close, argv[1]);
  int answer = cuInit(0);
  while (atomic_load(&g_running) != 0) answer = cuInit(0);
  for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
  printf("cuInit=%d\n", answer);
  return 0;
}

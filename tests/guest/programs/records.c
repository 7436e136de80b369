// SPDX-License-Identifier: Apache-2.0
// Makes an attempt of each kind in THREADS threads at once. argv: THREADS, more is ignored.
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_barrier_t g_start;

static void* attempt_all(void* unused) {
  static const char* const kInits[][2] = {{"libcuda.so.1", "cuInit"},
                                          {"libnvidia-ml.so.1", "nvmlInit"},
                                          {"libnvidia-ml.so.1", "nvmlInit_v2"},
                                          {"libnvidia-ml.so.1", "nvmlInitWithFlags"}};
  pthread_barrier_wait(&g_start);
  for (int i = 0; i < 4; ++i) {
    void* handle = dlopen(kInits[i][0], RTLD_NOW);
    int (*init)(unsigned) = handle ? (int (*)(unsigned))dlsym(handle, kInits[i][1]) : NULL;
    if (init != NULL) init(0);
  }
  dlopen("libnvidia-opencl.so.1", RTLD_NOW);
  dlopen("libonnxruntime_providers_cuda.so", RTLD_NOW);
  dlopen("libonnxruntime_providers_tensorrt.so", RTLD_NOW);
  return unused;
}

int main(int argc, char** argv) {
  const int count = argc > 1 ? atoi(argv[1]) : 1;
  pthread_t threads[64];
  if (count > 64) return 2;
  pthread_barrier_init(&g_start, NULL, (unsigned)count);
  for (int i = 0; i < count; ++i) pthread_create(&threads[i], NULL, attempt_all, NULL);
  for (int i = 0; i < count; ++i) pthread_join(threads[i], NULL);
  int (*attempts)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "cudaguard_attempts");
  printf("attempts=%d\n", attempts ? attempts() : -1);
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// A library to which a program is linked, and which is linked to the recording runtime MAJOR. ld.so
// puts both runtimes into the global scope. With ON_LOAD its constructor waits for a thread that
// asks, while ld.so's lock is held.
#include <pthread.h>

#include "probe.h"

#define PASTE(a, b) a##b
#define NAME(a, b) PASTE(a, b)

int cudaGetDeviceCount(int* count);
int cudaSetDevice(int device);
int cudaDeviceSynchronize(void);

#ifdef ON_LOAD
static int g_count = -7;
static int g_answers[3];

static void* ask(void* unused) {
  g_answers[0] = cudaGetDeviceCount(&g_count);
  g_answers[1] = cudaSetDevice(3);
  g_answers[2] = cudaDeviceSynchronize();
  return unused;
}

__attribute__((constructor)) static void ask_on_load(void) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, ask, NULL) == 0) pthread_join(thread, NULL);
}

void plugin_probe(int out) {
  probe_print(out, "onLoad=%d:%d:%d:%d\n", g_answers[0], g_count, g_answers[1], g_answers[2]);
}
#else
void NAME(use_runtime_, MAJOR)(int out) {
  int count = -7;
  const int count_answer = cudaGetDeviceCount(&count);
  const int set_answer = cudaSetDevice(3);
  const int wait_answer = cudaDeviceSynchronize();
  probe_print(out, "user%d=%d:%d:%d:%d\n", MAJOR, count_answer, count, set_answer, wait_answer);
}
#endif

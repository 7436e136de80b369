// SPDX-License-Identifier: Apache-2.0
// A library linked to the driver, which uses it while it is loaded: its constructor waits for a
// thread. With INJECTION, it is a profiler's library instead, which cuInit loads and then calls
// (CUDA_INJECTION64_PATH).
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

int cuInit(unsigned flags);
int cuDeviceGetCount(int* count);

static void* use(void* name) {
  int count = -7;
  const int init = cuInit(0);
  const int answer = cuDeviceGetCount(&count);
  char line[64];
  const int size =
      snprintf(line, sizeof line, "%s=%d:%d:%d\n", (const char*)name, init, answer, count);
  const ssize_t written = write(1, line, (size_t)size);
  (void)written;
  return name;
}

#ifdef INJECTION
int InitializeInjection(void) {
  use("injection");
  return 1;
}
#else
__attribute__((constructor)) static void start(void) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, use, "constructor") == 0) pthread_join(thread, NULL);
}
#endif

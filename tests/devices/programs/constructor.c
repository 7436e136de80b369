// SPDX-License-Identifier: Apache-2.0
// A plug-in linked to the driver whose constructor waits for a thread that uses it.
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

int cuInit(unsigned flags);
int cuDeviceGetCount(int* count);

static void* use(void* unused) {
  int count = -7;
  const int init = cuInit(0);
  const int answer = cuDeviceGetCount(&count);
  char line[64];
  const int size = snprintf(line, sizeof line, "constructor=%d:%d:%d\n", init, answer, count);
  const ssize_t written = write(1, line, (size_t)size);
  (void)written;
  return unused;
}

__attribute__((constructor)) static void start(void) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, use, NULL) == 0) pthread_join(thread, NULL);
}

// SPDX-License-Identifier: Apache-2.0
// A profiler's library, which cuInit loads (CUDA_INJECTION64_PATH), and which calls cuInit itself.
#include <stdio.h>
#include <unistd.h>

int cuInit(unsigned flags);
int cuDeviceGetCount(int* count);

int InitializeInjection(void) {
  int count = -7;
  const int init = cuInit(0);
  const int answer = cuDeviceGetCount(&count);
  char line[64];
  const int size = snprintf(line, sizeof line, "injection=%d:%d:%d\n", init, answer, count);
  const ssize_t written = write(1, line, (size_t)size);
  (void)written;
  return 1;
}

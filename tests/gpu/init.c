// SPDX-License-Identifier: Apache-2.0
// Prints the answer of the first cuInit of this process, and how many nanoseconds it took.
#include <dlfcn.h>
#include <stdio.h>
#include <time.h>

int main(void) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  int (*init)(unsigned) = library == NULL ? NULL : (int (*)(unsigned))dlsym(library, "cuInit");
  struct timespec before;
  struct timespec after;
  if (init == NULL) return 1;
  clock_gettime(CLOCK_MONOTONIC, &before);
  const int answer = init(0);
  clock_gettime(CLOCK_MONOTONIC, &after);
  printf("cuInit=%d initNs=%lld\n", answer,
         (after.tv_sec - before.tv_sec) * 1000000000LL + after.tv_nsec - before.tv_nsec);
  return 0;
}

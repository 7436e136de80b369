// SPDX-License-Identifier: Apache-2.0
// Prints how many nanoseconds the first dlopen of this process takes, for a library that is mapped
// already, and before it a dlopen of each library that is named.
//   bench_first_dlopen [LIBRARY...]
#include <dlfcn.h>
#include <stdio.h>
#include <time.h>

static long nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000L + now.tv_nsec;
}

int main(int count, char** libraries) {
  int failed = 0;
  nanoseconds();  // maps the vDSO's page
  const long start = nanoseconds();
  for (int i = 1; i < count; ++i) failed |= dlopen(libraries[i], RTLD_LAZY) == NULL;
  failed |= dlopen("libm.so.6", RTLD_LAZY) == NULL;
  const long end = nanoseconds();
  printf("%ld\n", end - start);
  return failed;
}

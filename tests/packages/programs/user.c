// SPDX-License-Identifier: Apache-2.0
// Uses the header of the package. The tests compile it by the package's CMake files and pkg-config.
#include <cudaguard.h>
#include <dlfcn.h>
#include <stdio.h>

int main(void) {
  if (!cudaguard_attempts) return puts("no guard") < 0;
  const int before = cudaguard_attempts();
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  int (*init)(unsigned) = driver ? (int (*)(unsigned))dlsym(driver, "cuInit") : NULL;
  const int answer = init ? init(0) : -1;
  return printf("attempts %d %d, cuInit %d\n", before, cudaguard_attempts(), answer) < 0;
}

// SPDX-License-Identifier: Apache-2.0
// A program whose own functions and variables have names like CUDA's.
#include <dlfcn.h>

#include "probe.h"

int cuFunny(void) { return 4712; }
int cudaFunny = 4713;
int nvmlFunny(void) { return 4714; }

int main(void) {
  int (*by_default)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "cuFunny");
  int* variable = (int*)dlsym(dlopen(NULL, RTLD_NOW), "cudaFunny");
  void* missing = dlopen("libcuda.so-like.so", RTLD_NOW);
  probe_print(1, "cuFunny=%d byName=%d variable=%d nvmlFunny=%d missing=%s error=%s\n", cuFunny(),
              by_default == NULL ? -1 : by_default(), variable == NULL ? -1 : *variable,
              nvmlFunny(), missing == NULL ? "null" : "found", probe_word(dlerror()));
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// A program without libgcc_s, like programs of C, Go and Rust with musl, so it has no unwinder.
#include <dlfcn.h>
#include <stdio.h>

__attribute__((noinline)) int ask_driver(void* driver) {
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
  return init(0) + 1;
}

int main(void) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  printf("%d\n", driver == NULL ? -1 : ask_driver(driver) - 1);
}

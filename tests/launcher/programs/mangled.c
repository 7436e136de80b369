// SPDX-License-Identifier: Apache-2.0
// Asks for CUDA in a function that is called NAME.
#include <dlfcn.h>
int ask(int (*init)(unsigned)) __asm__(NAME);
__attribute__((noinline)) int ask(int (*init)(unsigned)) {
  const int result = init(0);
  __asm__ volatile("");
  return result;
}
int main(void) {
  return ask((int (*)(unsigned))dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuInit")) == 0;
}

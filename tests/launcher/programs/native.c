// SPDX-License-Identifier: Apache-2.0
// Asks for CUDA in two lines. The test finds their numbers by the marks.
#include <dlfcn.h>
int main(void) {
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuInit");
  init(0);                              // asks first
  for (int i = 0; i < 3; ++i) init(0);  // asks often
  return 0;
}

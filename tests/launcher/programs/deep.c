// SPDX-License-Identifier: Apache-2.0
// Asks for CUDA under 100 frames of its own.
#include <dlfcn.h>
#include <stddef.h>

static int ask(int frames) {
  if (frames > 0) return ask(frames - 1) + 1;
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  int (*init)(unsigned) = NULL;
  if (driver != NULL) *(void**)&init = dlsym(driver, "cuInit");
  return init == NULL ? -1 : init(0);
}

int main(void) { return ask(100) < 0; }

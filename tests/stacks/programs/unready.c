// SPDX-License-Identifier: Apache-2.0
// unready LIBRARY: asks for CUDA while ld.so still fills in that library's references, and once
// more when it is ready.
#include <dlfcn.h>
#include <stdio.h>

static int (*g_init)(unsigned);

// Called by the library's resolver.
void ask(void);
void ask(void) {
  printf("%d\n", g_init(0));
  fflush(stdout);
}

int main(int argc, char** argv) {
  void* driver = argc == 2 ? dlopen("libcuda.so.1", RTLD_NOW) : NULL;
  if (driver == NULL) return 3;
  g_init = (int (*)(unsigned))dlsym(driver, "cuInit");
  if (dlopen(argv[1], RTLD_NOW) == NULL) return 4;
  // Of the guard's: the first calls of this process are written down again.
  int (*watch)(const char*) = (int (*)(const char*))dlsym(RTLD_DEFAULT, "cudaguard_watch");
  if (watch != NULL) watch(NULL);
  ask();
}

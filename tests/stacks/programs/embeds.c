// SPDX-License-Identifier: Apache-2.0
// embeds LIBPYTHON [local] WORD...: a program that has loaded Python as a plug-in, and runs it.
// With "local" nobody finds its names by dlsym; Python's own modules could not be loaded then, so
// that it asks the driver itself in a built-in function's place: by a signal that Python raises.
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static int (*g_init)(unsigned);

static void ask(int number) {
  (void)number;
  g_init(0);
}

int main(int argc, char** argv) {
  const int local = argc > 2 && strcmp(argv[2], "local") == 0;
  void* python = dlopen(argv[1], RTLD_NOW | (local ? RTLD_LOCAL : RTLD_GLOBAL));
  if (python == NULL) {
    puts(dlerror());
    return 2;
  }
  if (local) {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW);
    g_init = (int (*)(unsigned))dlsym(driver, "cuInit");
    signal(SIGUSR2, ask);
  }
  int (*run)(int, char**) = (int (*)(int, char**))dlsym(python, "Py_BytesMain");
  return run(argc - 1 - local, argv + 1 + local);
}

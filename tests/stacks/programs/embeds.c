// SPDX-License-Identifier: Apache-2.0
// embeds LIBPYTHON [local] WORD...: a program that loads Python as a plug-in and runs it. With
// "local", dlsym does not find Python's names in the whole program, and Python could not load its
// own modules. The program therefore calls the driver itself, in a signal handler that Python
// triggers, so that the caller is a built-in function.
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

// SPDX-License-Identifier: Apache-2.0
// Initialises CUDA before the guard's constructor has run. The page of the variable CUDAGUARD_LOG
// is closed, so the guard faults when it comes to it. The handler opens the page and initialises
// CUDA, too, as another thread could at that moment. Prints both answers.
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static void* page;
static int first = -1, second = -1;

static int ask(void) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  int (*init)(unsigned) = driver == NULL ? NULL : (int (*)(unsigned))dlsym(driver, "cuInit");
  return init == NULL ? -1 : init(0);
}

static void on_fault(int number) {
  (void)number;
  mprotect(page, 4096, PROT_READ | PROT_WRITE);
  second = ask();
}

static void early(int argc, char** argv, char** variables) {
  (void)argc;
  (void)argv;
  const char name[] = "CUDAGUARD_LOG=";
  while (*variables != NULL && strncmp(*variables, name, strlen(name)) != 0) ++variables;
  page = (void*)((uintptr_t)*variables & ~(uintptr_t)4095);
  signal(SIGSEGV, on_fault);
  mprotect(page, 4096, PROT_NONE);
  first = ask();
}

__attribute__((section(".preinit_array"), used)) static void (*before)(int, char**, char**) = early;

int main(void) {
  printf("first %d second %d\n", first, second);
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// early [overwrite | clear]: asks for CUDA after something was loaded before libc has set `environ`
// (-DPREINIT, -DIFUNC) or not; `overwrite` and `clear` do that to the environment before that.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char** environ;

__attribute__((unused)) static void load(void) { dlopen("libm.so.6", RTLD_NOW); }

#ifdef PREINIT
__attribute__((section(".preinit_array"), used)) static void (*g_preinit)(void) = load;
#endif
#ifdef IFUNC
static int answer(void) { return 7; }
static int (*resolve(void))(void) {
  load();
  return answer;
}
int chosen(void) __attribute__((ifunc("resolve")));
#endif
#ifdef LIBRARY
__attribute__((constructor)) static void on_load(void) { load(); }
#else

int main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[1], "clear") == 0) clearenv();
  if (argc > 1 && strcmp(argv[1], "overwrite") == 0) {
    for (char** entry = environ; *entry != NULL; ++entry) memset(*entry, 0, strlen(*entry));
  }
#ifdef IFUNC
  if (chosen() != 7) return 3;
#endif
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == NULL) return 4;
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
  printf("cuInit=%d\n", init(0));
  return 0;
}
#endif

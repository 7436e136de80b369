// SPDX-License-Identifier: Apache-2.0
// variables_main LIBRARY: loads it and prints what its plugin_begin returns. -DLINKED: is linked to
// it; -DIMPORTS: is bound to cuInit at its start, if there is one.
#include <dlfcn.h>
#include <stdio.h>

#ifdef IMPORTS
__attribute__((weak)) int cuInit(unsigned flags);
#endif
#ifdef LINKED
int plugin_begin(void);
#endif

int main(int argc, char** argv) {
#ifdef LINKED
  (void)argc;
  (void)argv;
  int (*begin)(void) = plugin_begin;
#else
#ifdef IMPORTS
  if (argc > 2) printf("import=%d\n", cuInit == NULL ? -1 : cuInit(0));
#endif
  void* library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
  if (library == NULL) return 2;
  int (*begin)(void) = (int (*)(void))dlsym(library, "plugin_begin");
  if (begin == NULL) return 0;
#endif
  printf("begin=%d\n", begin());
  return 0;
}

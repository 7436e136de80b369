// SPDX-License-Identifier: Apache-2.0
// The program (with MAIN) or a library of test_scope_model.py's graphs. It calls cudaSetDevice and
// cuInit through WEAK or strong references, and may define them (scope_definition.c). To make a
// node, the test overwrites in the built file the names of the libraries it needs, its SONAME and
// its number.
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef WEAK
#define REFERENCE __attribute__((weak))
#else
#define REFERENCE
#endif
REFERENCE int cudaSetDevice(int device);
REFERENCE int cuInit(unsigned flags);

// The number is the last two characters.
__attribute__((visibility("hidden"))) const char scope_node_number[] = "scope-node-number-00";
// The compiler must not know the value.
__attribute__((visibility("hidden"))) int scope_number(void);
int scope_number(void) {
  const char* volatile number = scope_node_number;
  return atoi(number + sizeof scope_node_number - 3);
}

// The call is never in tail position, so the return address is in this library.
static int ask(int driver) {
#ifdef WEAK
  if (cudaSetDevice == NULL || cuInit == NULL) return -1;
#endif
  int answer = driver ? cuInit(0) : cudaSetDevice(0);
  __asm__ volatile("" : "+r"(answer));
  return answer;
}

typedef int (*question)(int driver);
__attribute__((visibility("default"))) void scope_enlist(int number, question ask_it);

__attribute__((constructor)) static void enlist(void) { scope_enlist(scope_number(), ask); }

#ifdef MAIN
static question nodes[100];

void scope_enlist(int number, question ask_it) { nodes[number] = ask_it; }

// Prints which node each node's calls reach.
static void ask_all(void) {
  for (int i = 0; i < 100; ++i) {
    if (nodes[i] != NULL) printf("%d=%d ", i, nodes[i](0));
    if (nodes[i] != NULL && getenv("SCOPE_RUNTIME_ONLY") == NULL) {
      printf("%d:driver=%d ", i, nodes[i](1));
    }
  }
  printf("\n");
}

// scope_main [FLAGS:LIBRARY...] opens each library, and asks every node before and after it. FLAGS:
// g (global), d (deepbind), l (lazy).
int main(int argc, char** argv) {
  ask_all();
  for (int i = 1; i < argc; ++i) {
    const char* name = strchr(argv[i], ':');
    int mode = RTLD_NOW;
    for (const char* flag = argv[i]; flag < name; ++flag) {
      if (*flag == 'g') mode |= RTLD_GLOBAL;
      if (*flag == 'd') mode |= RTLD_DEEPBIND;
      if (*flag == 'l') mode ^= RTLD_NOW | RTLD_LAZY;
    }
    if (dlopen(name + 1, mode) == NULL) {
      printf("%s\n", dlerror());
      return 1;
    }
    ask_all();
  }
  return 0;
}
#endif

// SPDX-License-Identifier: Apache-2.0
// Prints the form of the guard's dlopen to which ld.so binds an import: "plain" or "version".
#include <dlfcn.h>
#include <stdio.h>

int main(void) {
  void* (*volatile import)(const char*, int) = dlopen;
  puts((void*)import == dlsym(RTLD_DEFAULT, "dlopen") ? "plain" : "version");
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// Tries to load the driver, as a program with a detection of GPUs does, and becomes the program in
// its arguments.
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char** argv) {
  const char* name = "libcuda.so.1";
  printf("%s: %s\n", name, dlopen(name, RTLD_NOW) ? "loaded" : "cannot open shared object file");
  fflush(stdout);
  return argc < 2 ? 0 : execvp(argv[1], argv + 1);
}

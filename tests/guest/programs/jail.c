// SPDX-License-Identifier: Apache-2.0
// jail DIRECTORY NAME...: changes its root directory, then opens each library.
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char** argv) {
  if (chroot(argv[1]) != 0 || chdir("/") != 0) return 2;
  for (int i = 2; i < argc; ++i) {
    printf("%s %s\n", argv[i], dlopen(argv[i], RTLD_NOW) != NULL ? "ok" : "null");
  }
  return 0;
}

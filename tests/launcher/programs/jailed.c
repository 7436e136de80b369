// SPDX-License-Identifier: Apache-2.0
// Calls a function of a library in a new root directory. argv: that, the library, the function.
#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int main(int count, char** words) {
  if (count < 4) return 9;
  if (geteuid() != 0 && unshare(CLONE_NEWUSER) != 0) return 8;
  if (chroot(words[1]) != 0 || chdir("/") != 0) return 7;
  void* handle = dlopen(words[2], RTLD_NOW);
  int (*init)(unsigned) = handle ? (int (*)(unsigned))dlsym(handle, words[3]) : 0;
  if (init == 0) return puts("refused") < 0;
  printf("answer %d\n", init(0));
  return 0;
}

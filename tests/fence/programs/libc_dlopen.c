// SPDX-License-Identifier: Apache-2.0
// libc_dlopen LIBRARY: opens it by libc's own dlopen, which no preload stands before, and calls
// cuInit.
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

int main(int count, char** words) {
  if (count != 2) return 2;
  void* libc = dlopen("libc.so.6", RTLD_NOW);
  void* (*open)(const char*, int) = (void* (*)(const char*, int))dlsym(libc, "dlopen");
  if (open == NULL) return 3;
  void* library = open(words[1], RTLD_NOW);
  if (library == NULL) return 4;
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
  if (init == NULL) return 5;
  printf("cuInit %s\n", strerrorname_np(init(0)));
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// poll COUNT NAME [MODE]: asks COUNT times for a library by dlopen, and as often by dlmopen, each
// from one place. Prints how many requests gave a handle.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  const int count = atoi(argv[1]);
  const int mode = RTLD_NOW | (argc > 3 ? RTLD_NOLOAD : 0);
  int opened = 0, in_base = 0;
  for (int i = 0; i < count; ++i) opened += dlopen(argv[2], mode) != NULL;
  for (int i = 0; i < count; ++i) in_base += dlmopen(LM_ID_BASE, argv[2], mode) != NULL;
  printf("opened %d in-base %d\n", opened, in_base);
  return 0;
}

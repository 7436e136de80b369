// SPDX-License-Identifier: Apache-2.0
// Prints AT_SECURE, by which ld.so distrusts the environment, and whether there is LD_PRELOAD.
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
int main(void) {
  printf("secure=%lu %s\n", getauxval(AT_SECURE), getenv("LD_PRELOAD") ? "preload" : "none");
  return 0;
}

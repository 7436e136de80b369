// SPDX-License-Identifier: Apache-2.0
// Is linked to the driver, and calls it.
#include <stdio.h>
int cuInit(unsigned);
int main(void) {
  printf("cuInit=%d\n", cuInit(0));
  return 0;
}

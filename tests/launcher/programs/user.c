// SPDX-License-Identifier: Apache-2.0
// Prints the effective user.
#include <stdio.h>
#include <unistd.h>
int main(void) {
  printf("%d\n", (int)geteuid());
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// Prints its mappings.
#include <stdio.h>
int main(void) {
  FILE* maps = fopen("/proc/self/maps", "r");
  for (int c; (c = getc(maps)) != EOF;) putchar(c);
  return 0;
}

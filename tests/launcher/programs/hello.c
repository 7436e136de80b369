// SPDX-License-Identifier: Apache-2.0
// Prints TEXT.
#include <stdio.h>
#ifndef TEXT
#define TEXT "hello"
#endif
int main(void) {
  puts(TEXT);
  return 0;
}

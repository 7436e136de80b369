// SPDX-License-Identifier: Apache-2.0
// A library with an error that memcheck must find: its constructor reads freed memory.
#include <stdlib.h>

__attribute__((constructor)) static void read_freed(void) {
  char* volatile block = malloc(1);
  free(block);
  volatile const char* freed = block;
  (void)*freed;
}

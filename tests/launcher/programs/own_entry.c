// SPDX-License-Identifier: Apache-2.0
// A program with an entry point of its own, which works for half a second. Go's also leaves the
// words below the arguments as ld.so has left them.
#include <time.h>
#include <unistd.h>
__asm__(".globl _start\n_start: lea -64(%rsp), %rsp\nand $-16, %rsp\ncall work\n");
void work(void) {
  const clock_t end = clock() + CLOCKS_PER_SEC / 2;
  while (clock() < end) {
  }
  _exit(0);
}

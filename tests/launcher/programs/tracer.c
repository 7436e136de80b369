// SPDX-License-Identifier: Apache-2.0
// Stops the process argv[1] at its end until this one ends.
#include <stdlib.h>
#include <sys/ptrace.h>
#include <unistd.h>
int main(int argc, char** argv) {
  if (ptrace(PTRACE_SEIZE, argc > 1 ? atoi(argv[1]) : 0, 0, (void*)PTRACE_O_TRACEEXIT) != 0)
    return 1;
  if (write(1, "y", 1) != 1) return 2;
  for (;;) pause();
}

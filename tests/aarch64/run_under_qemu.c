// SPDX-License-Identifier: Apache-2.0
// Runs an AArch64 program: run_under_qemu PROGRAM [ARG...]. The LD_* variables of the environment
// are meant for the program. This therefore removes them from the environment of qemu (an x86-64
// program) and passes them to the emulated loader with -E. It is linked statically, so that no
// loader reads them before qemu starts.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char** argv) {
  extern char** environ;
  char* command[256] = {"qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"};
  char* rest[512];
  int used = 3;
  int kept = 0;
  for (char** entry = environ; *entry != NULL && kept < 511; ++entry) {
    if (strncmp(*entry, "LD_", 3) != 0) {
      rest[kept++] = *entry;
    } else if (used < 200) {
      command[used++] = "-E";
      command[used++] = *entry;
    }
  }
  rest[kept] = NULL;
  for (int i = 1; i < argc && used < 255; ++i) command[used++] = argv[i];
  command[used] = NULL;
  execvpe(command[0], command, rest);
  perror("qemu-aarch64");
  return 127;
}

// SPDX-License-Identifier: Apache-2.0
// Executes argv[1] by a descriptor. tests/roots compiles it for another system.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int argc, char** argv) {
  const int file = open(argv[argc > 1], O_RDONLY);
  return (int)syscall(SYS_execveat, file, "", argv + 1, environ, AT_EMPTY_PATH);
}

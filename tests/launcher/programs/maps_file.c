// SPDX-License-Identifier: Apache-2.0
// Maps the file argv[1] to read it, or with another word to run it.
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
int main(int count, char** words) {
  struct stat status;
  int file = open(words[1], O_RDONLY);
  if (file < 0 || fstat(file, &status) != 0) return 9;
  int rights = count > 2 ? PROT_READ | PROT_EXEC : PROT_READ;
  if (mmap(NULL, status.st_size, rights, MAP_PRIVATE, file, 0) == MAP_FAILED) return 8;
  usleep(500000);
  return 0;
}

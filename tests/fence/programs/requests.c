// SPDX-License-Identifier: Apache-2.0
// requests FILE REQUEST...: what ioctl answers to each (hexadecimal), one per line: "c020462a
// ENOTTY".
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

int main(int count, char** words) {
  if (count < 2) return 2;
  const int file = open(words[1], O_RDWR);
  for (int i = 2; i < count; ++i) {
    const unsigned long request = strtoul(words[i], NULL, 16);
    errno = 0;
    const int result = ioctl(file, request, NULL);
    printf("%s %s\n", words[i], result == 0 ? "0" : strerrorname_np(errno));
  }
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// A driver whose cuInit sends NVIDIA's first request, and answers with the error's number.
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>

int cuInit(unsigned flags) {
  (void)flags;
  const int file = open("/dev/null", O_RDWR);
  return ioctl(file, 0xc04846d2UL, (void*)0) == 0 ? 0 : errno;  // CHECK_VERSION_STR
}

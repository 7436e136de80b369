// SPDX-License-Identifier: Apache-2.0
// What a setuid program such as nvidia-modprobe may do, and what a request to the driver answers
// it: "uid=65534 euid=0 no_new_privs=0 request=ENODEV".
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(void) {
  errno = 0;
  ioctl(open("/dev/null", O_RDWR), 0xc04846d2, NULL);
  const char* answer = strerrorname_np(errno);
  printf("uid=%d euid=%d no_new_privs=%d request=%s\n", (int)getuid(), (int)geteuid(),
         prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), answer);
  return 0;
}

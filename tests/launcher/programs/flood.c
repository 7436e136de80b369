// SPDX-License-Identifier: Apache-2.0
// Sends as many beacons with records as argv says.
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int count, char** words) {
  char text[400];
  unsigned long message[16] = {(unsigned long)text};
  for (long i = atol(words[1]); i-- > 0;) {
    message[1] =
        sprintf(text,
                "{\"v\":1,\"ts\":1.5,\"pid\":%ld,\"ppid\":1,\"exe\":\"/x%ld\","
                "\"argv\":[\"x\"],\"api\":\"f%ld\",\"event\":\"work\",\"decision\":\"allow\"}",
                i % 1000 + 1, i, i);
    syscall(SYS_getpid, 0x6375646167756172, 5, 0, message);
  }
  return count - 2;
}

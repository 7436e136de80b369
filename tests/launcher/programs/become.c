// SPDX-License-Identifier: Apache-2.0
// Executes argv[1] after 0.3 s, with the other words.
#include <stdlib.h>
#include <unistd.h>
int main(int count, char** words) {
  if (count < 3) return 9;
  usleep(300000);
  return execl(words[1], words[0], words[1], words[2], NULL);
}

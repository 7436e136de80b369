// SPDX-License-Identifier: Apache-2.0
// Moves the variables elsewhere, overwrites the old ones, and sleeps as many seconds as its last
// word says.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
extern char** environ;
__attribute__((constructor)) static void wipe(void) {
  for (char** entry = environ; *entry != NULL; ++entry) {
    char* old = *entry;
    *entry = strdup(old);
    memset(old, 0, strlen(old));
  }
}
int main(int n, char** words) { return usleep(atof(words[n - 1]) * 1e6); }

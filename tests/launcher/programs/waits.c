// SPDX-License-Identifier: Apache-2.0
// Sleeps as many seconds as its last word says.
#include <stdlib.h>
#include <unistd.h>
int main(int n, char** words) { return usleep(atof(words[n - 1]) * 1e6); }

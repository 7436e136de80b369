// SPDX-License-Identifier: Apache-2.0
// A library whose constructor does not return.
#include <unistd.h>
__attribute__((constructor)) static void start(void) {
  for (;;) pause();
}

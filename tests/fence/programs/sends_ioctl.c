// SPDX-License-Identifier: Apache-2.0
// A library that makes the ioctl REQUEST.
#include <sys/ioctl.h>
int send_ioctl(void) { return ioctl(-1, REQUEST, 0) + 1; }

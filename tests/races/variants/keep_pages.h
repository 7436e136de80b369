// SPDX-License-Identifier: Apache-2.0
// Included before everything else. Pages are not released, because ThreadSanitizer sees neither our
// system calls nor ld.so's. It would report a race if one thread releases an address and another
// gets it.
#pragma once

#include <sys/syscall.h>

#undef SYS_munmap
#define SYS_munmap SYS_getpid

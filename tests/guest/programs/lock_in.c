// SPDX-License-Identifier: Apache-2.0
// For programs in Python: from now on these system calls alone; every other one kills the process.
#include "allow_only.h"

int lock_in(int count, const char* const* numbers);
int lock_in(int count, const char* const* numbers) {
  return allow_only(count, numbers, SECCOMP_RET_KILL_PROCESS);
}

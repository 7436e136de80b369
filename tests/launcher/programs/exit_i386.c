// SPDX-License-Identifier: Apache-2.0
// A 32-bit program without a libc, which ends with the exit code 7 (system call 1).
void _start(void) { __asm__ volatile("int $0x80" : : "a"(1), "b"(7)); }

// SPDX-License-Identifier: Apache-2.0
// cudaguard-probe asks the driver that ld.so finds, because the static `cudaguard doctor` cannot.
// The probe is linked to libcuda.so.1 and libc alone, and has its own start code, because that of
// glibc 2.34 would not run with an older glibc. Each answer is a line that is written at once, so
// that a hang or a crash keeps the earlier ones.
#include <stdio.h>
#include <time.h>
#include <unistd.h>

// Weak, because a file that only has the driver's name may lack the function.
extern "C" [[gnu::weak]] int cuInit(unsigned flags);

namespace {

/// Starts with a newline, because the driver may have written half a line of its own.
void tell(const char* key, int code, long value) {
  dprintf(STDOUT_FILENO, "\ncudaguard-probe %s %d %ld\n", key, code, value);
}

long microseconds() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000 + now.tv_nsec / 1000;
}

int probe() {
  if (cuInit == nullptr) {
    tell("no-cuInit", 0, 0);
    return 1;
  }
  tell("asks", 0, 0);
  const long start = microseconds();
  const int code = cuInit(0);
  tell("init", code, microseconds() - start);
  return 0;
}

}  // namespace

extern "C" [[noreturn, gnu::used, gnu::visibility("hidden")]] void cudaguard_probe_main() {
  // Skips the driver's exit handlers, which may hang too.
  _exit(probe());
}

#if defined(__x86_64__)
asm(".globl _start\n"
    ".type _start, @function\n"
    "_start:\n"
    "  endbr64\n"
    "  xorl %ebp, %ebp\n"
    "  andq $-16, %rsp\n"
    "  call cudaguard_probe_main\n"
    "  ud2\n"
    ".size _start, . - _start\n");
#elif defined(__aarch64__)
asm(".globl _start\n"
    ".type _start, %function\n"
    "_start:\n"
    "  hint #34\n"  // bti c
    "  mov x29, #0\n"
    "  mov x30, #0\n"
    "  bl cudaguard_probe_main\n"
    "  brk #1\n"
    ".size _start, . - _start\n");
#endif

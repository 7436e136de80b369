// SPDX-License-Identifier: Apache-2.0
// cudaguard-probe asks the driver that ld.so finds, because the static `cudaguard doctor` cannot.
// The probe is linked to libcuda.so.1 and libc alone, and has its own start code, because that of
// glibc 2.34 would not run with an older glibc. Each answer is a line that is written at once, so
// that a hang or a crash keeps the earlier ones.
#include <stdio.h>
#include <time.h>
#include <unistd.h>

// Weak, because a file that only has the driver's name may lack the functions.
extern "C" {
[[gnu::weak]] int cuInit(unsigned flags);
[[gnu::weak]] int cuDeviceGetCount(int* count);
[[gnu::weak]] int cuDeviceGet(int* device, int ordinal);
[[gnu::weak]] int cuDeviceGetName(char* name, int length, int device);
[[gnu::weak]] int cuDeviceGetUuid(void* uuid, int device);
[[gnu::weak]] int nvmlInit_v2();
[[gnu::weak]] int cudaguard_attempts();  // of a guard in /etc/ld.so.preload
}

namespace {

/// Starts with a newline, because the driver may have written half a line of its own.
void report(const char* key, int code, long value) {
  dprintf(STDOUT_FILENO, "\ncudaguard-probe %s %d %ld\n", key, code, value);
}

long microseconds() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000 + now.tv_nsec / 1000;
}

int ask_about_device(int ordinal) {
  int device = 0;
  char name[256];
  char uuid[16];
  int code = cuDeviceGet(&device, ordinal);
  if (code == 0) code = cuDeviceGetName(name, sizeof name, device);
  if (code == 0) code = cuDeviceGetUuid(uuid, device);
  return code;
}

/// Stops at the first error. Creates no context.
int ask_about_gpus() {
  if (cuDeviceGetCount == nullptr || cuDeviceGet == nullptr || cuDeviceGetName == nullptr ||
      cuDeviceGetUuid == nullptr) {
    return 1;
  }
  int count = 0;
  int code = cuDeviceGetCount(&count);
  report("count", code, count);
  for (int ordinal = 0; code == 0 && ordinal < count; ++ordinal) {
    code = ask_about_device(ordinal);
    report("device", code, ordinal);
  }
  return code == 0 ? 0 : 1;
}

int probe(bool gpus) {
  if (cuInit == nullptr) {
    report("no-cuInit", 0, 0);
    return 1;
  }
  report("asks", 0, 0);
  const long start = microseconds();
  const int code = cuInit(0);
  if (cudaguard_attempts != nullptr && cudaguard_attempts() != 0) {
    report("refused", 0, 0);  // the answer is not the driver's
    return 1;
  }
  report("init", code, microseconds() - start);
  if (code == 0 && gpus && ask_about_gpus() != 0) return 0;
  // NVML is there if doctor has preloaded it. It can hang although CUDA answers. Its errors do not
  // count, because a container may have CUDA alone.
  if (code == 0 && gpus && nvmlInit_v2 != nullptr) {
    report("asks-nvml", 0, 0);
    nvmlInit_v2();
  }
  if (code == 0) report("done", 0, 0);
  return 0;
}

}  // namespace

extern "C" [[noreturn, gnu::used, gnu::visibility("hidden")]] void cudaguard_probe_main(
    const long* stack) {
  // The kernel puts argc at the start of the stack. The one argument is "gpus". Skips the driver's
  // exit handlers, which may hang too.
  _exit(probe(*stack > 1));
}

#if defined(__x86_64__)
asm(".globl _start\n"
    ".type _start, @function\n"
    "_start:\n"
    "  endbr64\n"
    "  xorl %ebp, %ebp\n"
    "  movq %rsp, %rdi\n"
    "  andq $-16, %rsp\n"
    "  call cudaguard_probe_main\n"
    "  ud2\n"
    ".size _start, . - _start\n");
#elif defined(__aarch64__)
asm(".globl _start\n"
    ".type _start, %function\n"
    "_start:\n"
    "  hint #34\n"  // bti c
    "  mov x0, sp\n"
    "  mov x29, #0\n"
    "  mov x30, #0\n"
    "  bl cudaguard_probe_main\n"
    "  brk #1\n"
    ".size _start, . - _start\n");
#endif

// SPDX-License-Identifier: Apache-2.0
// requests [--by=WAY] [--euid] FILE REQUEST...: what ioctl answers to each (hexadecimal, 64 bits),
// one per line: "c020462a ENOTTY". FILE -1: no file. WAY: libc; syscall; int80, x32, x32_native,
// x32_unguarded: as 32-bit and x32 programs do. --euid: "euid 0" first.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char* name_of(int error) {
#ifdef __GLIBC__
  return strerrorname_np(error);
#else
  return error == ENOTTY ? "ENOTTY" : error == ENODEV ? "ENODEV" : strerror(error);
#endif
}

static long by_number(long number, int file, unsigned long request) {
  return syscall(number, file, request, NULL);
}

static long int80(int file, unsigned long request) {
  long answer = -ENOSYS;
#ifdef __x86_64__
  __asm__ volatile("int $0x80"
                   : "=a"(answer)
                   : "a"(54L), "b"((long)file), "c"(request), "d"(0L)
                   : "memory", "r8", "r9", "r10", "r11");
#endif
  if (answer >= 0) return answer;
  errno = (int)-answer;
  return -1;
}

static long ask(const char* way, int file, unsigned long request) {
  const long x32 = 0x40000000;
  if (strcmp(way, "syscall") == 0) return by_number(SYS_ioctl, file, request);
  if (strcmp(way, "int80") == 0) return int80(file, request);
  if (strcmp(way, "x32") == 0) return by_number(x32 | 514, file, request);
  if (strcmp(way, "x32_native") == 0) return by_number(x32 | SYS_ioctl, file, request);
  if (strcmp(way, "x32_unguarded") == 0) return by_number(514, file, request);
  return ioctl(file, request, NULL);
}

int main(int count, char** words) {
  const char* way = "libc";
  for (; count > 1 && strncmp(words[1], "--", 2) == 0; --count, ++words) {
    if (strncmp(words[1], "--by=", 5) == 0) way = words[1] + 5;
    if (strcmp(words[1], "--euid") == 0) printf("euid %d\n", (int)geteuid());
  }
  if (count < 2) return 2;
  const int file = strcmp(words[1], "-1") == 0 ? -1 : open(words[1], O_RDWR);
  for (int i = 2; i < count; ++i) {
    const unsigned long request = strtoul(words[i], NULL, 16);
    const long answer = ask(way, file, request);
    printf("%s %s\n", words[i], answer == 0 ? "0" : name_of(errno));
  }
  return 0;
}

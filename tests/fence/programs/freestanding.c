// SPDX-License-Identifier: Apache-2.0
// freestanding FILE REQUEST...: as requests, but without any library; for i386, whose libc no test
// machine need have.
enum { kWrite = 4, kOpen = 5, kExit = 1, kIoctl = 54, kReadWrite = 2 };

static long call(long number, long first, long second, long third) {
  long answer;
  __asm__ volatile("int $0x80"
                   : "=a"(answer)
                   : "a"(number), "b"(first), "c"(second), "d"(third)
                   : "memory");
  return answer;
}

static void print(const char* text) {
  long length = 0;
  while (text[length] != 0) ++length;
  call(kWrite, 1, (long)text, length);
}

static unsigned long from_hex(const char* text) {
  unsigned long value = 0;
  for (; *text != 0; ++text)
    value = value << 4 | (unsigned long)(*text & 15) + (*text > '9' ? 9 : 0);
  return value;
}

__attribute__((used)) void begin(long* stack) {
  char** words = (char**)(stack + 1);
  const long file = call(kOpen, (long)words[1], kReadWrite, 0);
  for (long i = 2; i < stack[0]; ++i) {
    const long answer = call(kIoctl, file, (long)from_hex(words[i]), 0);
    print(words[i]);
    print(answer == 0     ? " 0\n"
          : answer == -25 ? " ENOTTY\n"
          : answer == -19 ? " ENODEV\n"
                          : " other\n");
  }
  call(kExit, 0, 0, 0);
}

__asm__(
    ".globl _start\n_start:\n  mov %esp, %eax\n  and $-16, %esp\n  sub $12, %esp\n  push %eax\n  "
    "call begin\n");

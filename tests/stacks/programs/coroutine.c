// SPDX-License-Identifier: Apache-2.0
// coroutine own: asks for CUDA on a stack that it has made, at whose end stands no return address,
// as minicoro makes them.
// coroutine shared LIBRARY: on the first thread's own, with what others have left there outside.
#include <dlfcn.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { kSize = 1 << 20 };

static int (*g_init)(unsigned);
static jmp_buf g_back;
static int g_answer;

static void run(void) {
  g_answer = g_init(0);
  longjmp(g_back, 1);
}

__attribute__((noinline)) static void start_at(char* end) {
  void** top = (void**)(end - 264);
  *top = (void*)0xdeaddeaddeaddead;
#if defined(__x86_64__)
  __asm__ volatile("mov %0, %%rsp\n\tjmp *%1" ::"r"(top), "r"(run));
#else
  __asm__ volatile("mov sp, %0\n\tmov x30, %2\n\tbr %1" ::"r"(end - 256), "r"(run), "r"(*top));
#endif
}

int main(int argc, char** argv) {
  if (dlopen("libgcc_s.so.1", RTLD_NOW) == NULL) return 3;
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == NULL) return 4;
  g_init = (int (*)(unsigned))dlsym(driver, "cuInit");
  char* end = NULL;
  char ours[2 * 65536];
  if (argc == 2) {
    end = mmap(NULL, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (end == MAP_FAILED) return 5;
    end += kSize;
  } else {
    if (dlopen(argv[2], RTLD_NOW) == NULL) return 6;
    memset(ours, 0, sizeof ours);
    end = (char*)((unsigned long)(ours + sizeof ours) & ~15UL);
  }
  if (setjmp(g_back) == 0) start_at(end);
  printf("%d\n", g_answer);
}

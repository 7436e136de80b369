// SPDX-License-Identifier: Apache-2.0
// coroutine KIND SIZE: loads CUDA for the first time on a coroutine's stack, on the first thread.
// cuInit's answer is the exit code. KIND is the memory of the stack: mmap, calloc (as in minicoro),
// or frame, an array in main. The outermost return address is minicoro's marker, which is not code.
#include <dlfcn.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const uintptr_t kMarker = 0xdeaddeaddeaddeadu;
static jmp_buf g_back;
static int g_answer = 255;

static void body(void) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  int (*init)(unsigned) = driver ? (int (*)(unsigned))dlsym(driver, "cuInit") : NULL;
  if (init) g_answer = init(0);
  longjmp(g_back, 1);
}

static void run_on(char* stack, size_t size) {
  uintptr_t top = ((uintptr_t)stack + size) & ~(uintptr_t)15;
  if (setjmp(g_back) != 0) return;
#if defined(__x86_64__)
  top -= sizeof kMarker;
  memcpy((void*)top, &kMarker, sizeof kMarker);
  __asm__ volatile("mov %0, %%rsp\n jmp *%1" ::"r"(top), "r"(body) : "memory");
#elif defined(__aarch64__)
  __asm__ volatile("mov sp, %0\n mov x30, %2\n br %1" ::"r"(top), "r"(body), "r"(kMarker)
                   : "memory", "x30");
#endif
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const size_t size = (size_t)atol(argv[2]);
  char* stack;
  if (strcmp(argv[1], "frame") == 0)
    stack = __builtin_alloca(size);
  else if (strcmp(argv[1], "calloc") == 0)
    stack = calloc(1, size);
  else
    stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (stack == NULL || stack == MAP_FAILED) return 3;
  run_on(stack, size);
  return g_answer;
}

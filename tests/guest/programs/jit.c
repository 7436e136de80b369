// SPDX-License-Identifier: Apache-2.0
// A call to CUDA in memory that belongs to no file, as a just-in-time compiler makes it.
#include <dlfcn.h>
#include <string.h>
#include <sys/mman.h>
__attribute__((noinline)) static int call(int (*f)(unsigned)) { return f(0) + 1; }
int main(void) {
  char* at = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memcpy(at, (void*)call, 256);
  __builtin___clear_cache(at, at + 256);
  return ((int (*)(void*))at)(dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuInit")) == 0;
}

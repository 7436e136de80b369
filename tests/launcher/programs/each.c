// SPDX-License-Identifier: Apache-2.0
// Loads each library in its arguments, calls its function ask(), and unloads it. -DLIBRARY: such a
// library, which initialises CUDA.
#include <dlfcn.h>
#include <stdio.h>
#ifdef LIBRARY
int ask(void) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  int (*init)(unsigned) = driver == NULL ? NULL : (int (*)(unsigned))dlsym(driver, "cuInit");
  const int answer = init == NULL ? -1 : init(0);
  return answer;  // not a tail call: the return address is in this library
}
#else
int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    void* library = dlopen(argv[i], RTLD_NOW);
    int (*ask)(void) = library == NULL ? NULL : (int (*)(void))dlsym(library, "ask");
    if (ask == NULL) return 1;
    printf("%p %d\n", (void*)ask, ask());
    dlclose(library);
  }
  return 0;
}
#endif

// SPDX-License-Identifier: Apache-2.0
// Uses runtimes of two major versions, at least one of them in the global scope. With BOTH, the
// program is linked to two libraries, each of them linked to its own runtime. Otherwise, it is
// linked to runtime 12 itself, and argv[1] is a plug-in linked to another one.
#include <dlfcn.h>

#include "probe.h"

#ifdef BOTH
void use_runtime_12(int out);
void use_runtime_13(int out);

int main(void) {
  for (int i = 0; i < 2; ++i) {
    use_runtime_12(1);
    use_runtime_13(1);
  }
  return 0;
}
#else
int cudaGetDeviceCount(int* count);
int cudaSetDevice(int device);
int cudaDeviceSynchronize(void);

int main(int argc, char** argv) {
  const int flags = argc > 2 && strcmp(argv[2], "global") == 0 ? RTLD_GLOBAL : RTLD_LOCAL;
  void* plugin = dlopen(argv[1], RTLD_NOW | flags);
  void (*call)(int) = plugin == NULL ? NULL : (void (*)(int))dlsym(plugin, "plugin_probe");
  if (call == NULL) return 1;
  for (int i = 0; i < 2; ++i) {
    int count = -7;
    const int count_answer = cudaGetDeviceCount(&count);
    const int set_answer = cudaSetDevice(3);
    const int wait_answer = cudaDeviceSynchronize();
    probe_print(1, "program=%d:%d:%d:%d\n", count_answer, count, set_answer, wait_answer);
    call(1);
  }
  return 0;
}
#endif

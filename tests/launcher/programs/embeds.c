// SPDX-License-Identifier: Apache-2.0
// Asks for CUDA from the Python code that it embeds. argv: the library of Python, and with another
// word it asks before it loads Python.
#include <dlfcn.h>
static int (*init)(unsigned);
int ask(void) {
  volatile int answer = init(0);
  return answer;
}
int main(int count, char** words) {
  init = (int (*)(unsigned))dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuInit");
  if (count > 2) ask();
  void* python = dlopen(words[1], RTLD_NOW | RTLD_GLOBAL);
  if (python == 0) return 9;
  ((void (*)(void))dlsym(python, "Py_Initialize"))();
  return ((int (*)(const char*))dlsym(python, "PyRun_SimpleString"))(
      "import ctypes\nask = ctypes.CDLL(None).ask\nask()\nask()\n");
}

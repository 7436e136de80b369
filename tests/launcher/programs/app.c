// SPDX-License-Identifier: Apache-2.0
// Asks for CUDA. With one word it renames that file to its own name.
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>
static int (*init)(unsigned);
__attribute__((noinline)) static int train(void) {
  int result = init(0);  // asks
  return result + 1;
}
int main(int count, char** words) {
  init = (int (*)(unsigned))dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuInit");
  int result = train();  // calls train
  usleep(50000);         // The kernel's time stamps of files are some ms late.
  if (count == 2) return rename(words[1], words[0]) != 0;
  return result == 0;
}

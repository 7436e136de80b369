// SPDX-License-Identifier: Apache-2.0
// Prints what dlopen answers for each argument.
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char** words) {
  for (int i = 1; i < count; ++i) printf("%d=%s\n", i, dlopen(words[i], RTLD_NOW) ? "set" : "null");
  return 0;
}

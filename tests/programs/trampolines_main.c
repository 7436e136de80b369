// SPDX-License-Identifier: Apache-2.0
// Calls driver functions by name. Its own trampolines, in the program or in a library, answer the
// calls.
#include "linked.h"

int main(void) {
  const int answer = cuInit(0);
  int count = -7;
  const int count_answer = cuDeviceGetCount(&count);
  int version = -7;
  cuDriverGetVersion(&version);
  int (*by_proc)(unsigned) = NULL;
  const int proc_answer = cuGetProcAddress_v2("cuInit", (void**)&by_proc, 13000, 0, NULL);
  probe_print(1, "cuInit=%d countRc=%d count=%d version=%d procRc=%d procInit=%d\n", answer,
              count_answer, count, version, proc_answer, by_proc == NULL ? -1 : by_proc(0));
  return 0;
}

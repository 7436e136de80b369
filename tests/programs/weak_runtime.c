// SPDX-License-Identifier: Apache-2.0
// A program that uses the runtime if it is loaded, and is not linked to one.
#include "probe.h"

__attribute__((weak)) int cudaSetDevice(int device);
__attribute__((weak)) int cudaMalloc(void** memory, size_t size);

int main(void) {
  probe_print(1, "cudaSetDevice=%s cudaMalloc=%s ", cudaSetDevice != NULL ? "set" : "null",
              cudaMalloc != NULL ? "set" : "null");
  probe_print(1, "answer=%d\n", cudaSetDevice != NULL ? cudaSetDevice(0) : -1);
  return 0;
}

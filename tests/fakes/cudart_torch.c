// SPDX-License-Identifier: Apache-2.0
// What PyTorch 2.3 calls, beside the functions of cudart.c, until a tensor without a kernel is on a
// GPU. A GPU's memory is the process's own. Preloaded, it takes the place of the runtime that
// PyTorch brings along, which refuses a fake driver.
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { kSuccess = 0, kNoMemory = 2 };

int cudaDriverGetVersion(int* version) {
  *version = MAJOR * 1000;
  return kSuccess;
}

int cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return kSuccess;
}

int cudaStreamIsCapturing(void* stream, int* capturing) {
  (void)stream;
  *capturing = 0;
  return kSuccess;
}

int cudaStreamSynchronize(void* stream) {
  (void)stream;
  return kSuccess;
}

int cudaMemGetInfo(size_t* available, size_t* total) {
  *available = *total = (size_t)1 << 30;
  return kSuccess;
}

int cudaMalloc(void** memory, size_t size) {
  *memory = calloc(1, size);
  return *memory != NULL ? kSuccess : kNoMemory;
}

int cudaMemcpyAsync(void* to, const void* from, size_t size, int kind, void* stream) {
  (void)kind;
  (void)stream;
  memcpy(to, from, size);
  return kSuccess;
}

// SPDX-License-Identifier: Apache-2.0
// An ordinary CUDA program, linked to the static runtime as nvcc links it, so no cuda* or cu*
// symbol can be interposed. scripts/quickstart runs it without and with the guard.
#include <cuda_runtime_api.h>

#include <cstdio>

int main() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    std::printf("hello_cuda: %s (error %d); working on the CPU\n", cudaGetErrorString(error),
                error);
    return 0;
  }
  float in[4] = {1, 2, 3, 4};
  float out[4] = {};
  void* memory = nullptr;
  if (cudaMalloc(&memory, sizeof in) != cudaSuccess ||
      cudaMemcpy(memory, in, sizeof in, cudaMemcpyHostToDevice) != cudaSuccess ||
      cudaMemcpy(out, memory, sizeof out, cudaMemcpyDeviceToHost) != cudaSuccess) {
    std::printf("hello_cuda: %s\n", cudaGetErrorString(cudaGetLastError()));
    return 1;
  }
  cudaFree(memory);
  std::printf("hello_cuda: %d GPU(s), copied %.0f %.0f %.0f %.0f there and back\n", count, out[0],
              out[1], out[2], out[3]);
  return 0;
}

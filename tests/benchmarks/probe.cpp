// SPDX-License-Identifier: Apache-2.0
// A program with the static cudart that prints the nanoseconds of its first cudaGetDeviceCount and
// the error. With an argument it then waits until its standard input ends, so that its memory can
// be read.
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

int main(int argc, char**) {
  const auto start = std::chrono::steady_clock::now();
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  const auto spent = std::chrono::steady_clock::now() - start;
  std::printf(
      "%lld %d\n",
      static_cast<long long>(std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count()),
      static_cast<int>(error));
  std::fflush(stdout);
  char byte;
  if (argc > 1) return read(0, &byte, 1) == 0 ? 0 : 1;
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// A plug-in linked to one of NVIDIA's shared runtimes. It prints which runtime answers its calls.
#include <cuda_runtime_api.h>

#include "probe.h"

extern "C" __attribute__((visibility("default"))) void plugin_probe(int out) {
  int version = -7;
  cudaRuntimeGetVersion(&version);
  int count = -7;
  const cudaError_t count_answer = cudaGetDeviceCount(&count);
  const cudaError_t set_answer = cudaSetDevice(0);
  const cudaError_t wait_answer = cudaDeviceSynchronize();
  probe_print(out, "runtime=%d count=%d:%d set=%d wait=%d built=%d\n", version, count_answer, count,
              set_answer, wait_answer, CUDART_VERSION);
}

// This call is in tail position, so its return address is in the caller of this plug-in.
extern "C" __attribute__((visibility("default"))) int plugin_tail(int* count) {
  return cudaGetDeviceCount(count);
}

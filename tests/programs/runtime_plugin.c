// SPDX-License-Identifier: Apache-2.0
// A plug-in linked to one of the recording runtimes, or of NVIDIA's. It prints which one answers.
#include "probe.h"

int cudaGetDeviceCount(int* count);
int cudaSetDevice(int device);
int cudaDeviceSynchronize(void);
int cudaRuntimeGetVersion(int* version);

void plugin_probe(int out) {
  int version = -7;
  cudaRuntimeGetVersion(&version);
  int count = -7;
  const int count_answer = cudaGetDeviceCount(&count);
  const int set_answer = cudaSetDevice(3);
  const int wait_answer = cudaDeviceSynchronize();
  probe_print(out, "runtime=%d count=%d:%d set=%d wait=%d\n", version, count_answer, count,
              set_answer, wait_answer);
}

// This call is in tail position, so its return address is in the caller of this plug-in.
int plugin_tail(int* count) { return cudaGetDeviceCount(count); }

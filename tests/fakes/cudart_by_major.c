// SPDX-License-Identifier: Apache-2.0
// A runtime of major version MAJOR whose every answer names that version.
#include "fake_log.h"

#define TEXT(x) #x
#define NUMBER(x) TEXT(x)
#define ANSWERS(name, answer, ...)               \
  int name(__VA_ARGS__) {                        \
    fake_log("cudart" NUMBER(MAJOR) ":", #name); \
    return answer;                               \
  }

static int put(int* to, int number, int answer) {
  *to = number;
  return answer;
}

ANSWERS(cudaGetDeviceCount, put(count, MAJOR, MAJOR), int* count)
ANSWERS(cudaSetDevice, MAJOR * 100 + device, int device)
ANSWERS(cudaDeviceSynchronize, MAJOR * 1000, void)
ANSWERS(cudaRuntimeGetVersion, put(version, MAJOR * 1000, 0), int* version)

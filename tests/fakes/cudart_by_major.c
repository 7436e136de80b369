// SPDX-License-Identifier: Apache-2.0
// A runtime of major version MAJOR whose every answer names that version.
#include "fake_log.h"

#define TEXT(x) #x
#define NUMBER(x) TEXT(x)
#define LOG(name) fake_log("cudart" NUMBER(MAJOR) ":", name)

int cudaGetDeviceCount(int* count) {
  LOG("cudaGetDeviceCount");
  *count = MAJOR;
  return MAJOR;
}

int cudaSetDevice(int device) {
  LOG("cudaSetDevice");
  return MAJOR * 100 + device;
}

int cudaDeviceSynchronize(void) {
  LOG("cudaDeviceSynchronize");
  return MAJOR * 1000;
}

int cudaRuntimeGetVersion(int* version) {
  LOG("cudaRuntimeGetVersion");
  *version = MAJOR * 1000;
  return 0;
}

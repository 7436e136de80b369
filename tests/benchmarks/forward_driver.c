// SPDX-License-Identifier: Apache-2.0
// A driver for benchmarks, whose calls only compare an index.
#include <stddef.h>

enum { kGpus = 8, kInvalidDevice = 101, kNotFound = 500 };

int cuInit(unsigned flags) { return flags == 0 ? 0 : 1; }

int cuDeviceGetCount(int* count) {
  *count = kGpus;
  return 0;
}

int cuDeviceGet(int* device, int ordinal) {
  if (ordinal < 0 || ordinal >= kGpus) return kInvalidDevice;
  *device = ordinal;
  return 0;
}

// This function is not guarded.
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (device < 0 || device >= kGpus) return kInvalidDevice;
  *value = attribute;
  return 0;
}

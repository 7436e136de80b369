// SPDX-License-Identifier: Apache-2.0
// A driver for benchmarks, whose calls only compare an index.
#include <stddef.h>

enum { kGpus = 8, kInvalidDevice = 101, kNotFound = 500 };

#define EXPORT __attribute__((visibility("default")))

EXPORT int cuInit(unsigned flags);
int cuInit(unsigned flags) { return flags == 0 ? 0 : 1; }

EXPORT int cuDeviceGetCount(int* count);
int cuDeviceGetCount(int* count) {
  *count = kGpus;
  return 0;
}

EXPORT int cuDeviceGet(int* device, int ordinal);
int cuDeviceGet(int* device, int ordinal) {
  if (ordinal < 0 || ordinal >= kGpus) return kInvalidDevice;
  *device = ordinal;
  return 0;
}

// This function is not guarded.
EXPORT int cuDeviceGetAttribute(int* value, int attribute, int device);
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (device < 0 || device >= kGpus) return kInvalidDevice;
  *value = attribute;
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// A library whose name only looks like a driver's, so the guard must ignore it. It reports the file
// that it was built as, and has functions and a variable that look like CUDA's.
#include "probe.h"

int cuInitialised = 5;

int cudnnCreate(void** handle) {
  *handle = NULL;
  return 4711;
}
int cuFunny(void) { return 4712; }
int cudaFunny(void) { return 4713; }
void plugin_probe(int out) {
  void* handle = NULL;
  probe_print(out, "decoy=%s cudnnCreate=%d cuFunny=%d cudaFunny=%d variable=%d\n", DECOY_NAME,
              cudnnCreate(&handle), cuFunny(), cudaFunny(), cuInitialised);
}

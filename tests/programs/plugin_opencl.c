// SPDX-License-Identifier: Apache-2.0
// A plug-in that is linked to the OpenCL loader and counts NVIDIA's platforms.
#include "probe.h"

int clGetPlatformIDs(unsigned room, void** platforms, unsigned* count);
int clGetPlatformInfo(void* platform, unsigned what, size_t size, void* value, size_t* needed);

void plugin_probe(int out) {
  enum { kVendor = 0x0903 };
  void* platforms[16];
  unsigned count = 0;
  const int answer = clGetPlatformIDs(16, platforms, &count);
  int nvidia = 0;
  for (unsigned i = 0; answer == 0 && i < count && i < 16; ++i) {
    char vendor[256] = "";
    clGetPlatformInfo(platforms[i], kVendor, sizeof vendor, vendor, NULL);
    nvidia += strstr(vendor, "NVIDIA") != NULL;
  }
  probe_print(out, "answer=%d platforms=%u nvidia=%d\n", answer, count, nvidia);
}

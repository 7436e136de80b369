// SPDX-License-Identifier: Apache-2.0
// A plug-in that is linked to libcuda.so.1, as ONNX Runtime's CUDA provider and pycuda are.
#include "linked.h"

void plugin_probe(int out) {
  struct linked_entry entries[] = {LINKED(cuInit),           LINKED(cuDriverGetVersion),
                                   LINKED(cuDeviceGetCount), LINKED(cuGetErrorName),
                                   LINKED(cuGetExportTable), {NULL, NULL}};
  probe_cuda(out, find_linked, entries);
}

// SPDX-License-Identifier: Apache-2.0
// A plug-in that is linked to libnvidia-ml.so.1.
#include "linked.h"

void plugin_probe(int out) {
  struct linked_entry entries[] = {LINKED(nvmlInit),
                                   LINKED(nvmlInit_v2),
                                   LINKED(nvmlInitWithFlags),
                                   LINKED(nvmlShutdown),
                                   LINKED(nvmlDeviceGetCount),
                                   LINKED(nvmlDeviceGetCount_v2),
                                   LINKED(nvmlDeviceGetHandleByIndex_v2),
                                   LINKED(nvmlDeviceGetHandleByUUID),
                                   LINKED(nvmlErrorString),
                                   {NULL, NULL}};
  probe_nvml(out, find_linked, entries);
}

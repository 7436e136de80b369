// SPDX-License-Identifier: Apache-2.0
// A recording libnvidia-ml.so.1 with one device: every call appends its name to $CG_FAKE_LOG.
#include <stddef.h>
#include <stdio.h>

#include "fake_log.h"

enum { kSuccess = 0, kInvalidArgument = 2, kUnknown = 999 };

static int g_device;

// All names but those written out below.
#define OTHER(name)      \
  int name(void);        \
  int name(void) {       \
    fake_log("", #name); \
    return kUnknown;     \
  }
#include "fake_nvml_names.h"
#undef OTHER

static int init(const char* name) {
  fake_log("", name);
  return kSuccess;
}

static int one(const char* name, unsigned* count) {
  fake_log("", name);
  *count = 1;
  return kSuccess;
}

static int handle(const char* name, unsigned index, void** device) {
  fake_log("", name);
  if (index != 0) return kInvalidArgument;
  *device = &g_device;
  return kSuccess;
}

int nvmlInit(void) { return init("nvmlInit"); }
int nvmlInit_v2(void) { return init("nvmlInit_v2"); }
int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  return init("nvmlInitWithFlags");
}
int nvmlShutdown(void) { return init("nvmlShutdown"); }
int nvmlDeviceGetCount(unsigned* count) { return one("nvmlDeviceGetCount", count); }
int nvmlDeviceGetCount_v2(unsigned* count) { return one("nvmlDeviceGetCount_v2", count); }
int nvmlDeviceGetHandleByIndex(unsigned index, void** device) {
  return handle("nvmlDeviceGetHandleByIndex", index, device);
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  return handle("nvmlDeviceGetHandleByIndex_v2", index, device);
}
int nvmlDeviceGetName(void* device, char* name, unsigned size) {
  (void)device;
  fake_log("", "nvmlDeviceGetName");
  snprintf(name, size, "%s", "Recording fake");
  return kSuccess;
}
int nvmlSystemGetDriverVersion(char* version, unsigned size) {
  fake_log("", "nvmlSystemGetDriverVersion");
  snprintf(version, size, "%s", "599.01");
  return kSuccess;
}
const char* nvmlErrorString(int error) {
  (void)error;
  fake_log("", "nvmlErrorString");
  return "an answer of the recording fake driver";
}

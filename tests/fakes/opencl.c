// SPDX-License-Identifier: Apache-2.0
// A recording libnvidia-opencl.so.1 with one platform without devices. Like NVIDIA's, it opens the
// device without libcuda as soon as the OpenCL loader asks for its platforms.
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "fake_log.h"

enum { kSuccess = 0, kDeviceNotFound = -1, kInvalidValue = -30 };

// Khronos' dispatch table begins with these entries, and the loader uses no other entry of a
// platform.
struct platform {
  void** dispatch;
};

static int get_platform_info(struct platform* platform, unsigned what, size_t size, void* value,
                             size_t* needed) {
  (void)platform;
  static const char* const texts[] = {
      [0x00] = "FULL_PROFILE", [0x01] = "OpenCL 3.0 CUDA 13.0.20",
      [0x02] = "NVIDIA CUDA",  [0x03] = "NVIDIA Corporation",
      [0x04] = "cl_khr_icd",   [0x20] = "NV",
  };
  const char* text = what >= 0x0900 && what <= 0x0920 ? texts[what - 0x0900] : NULL;
  if (text == NULL) return kInvalidValue;
  const size_t length = strlen(text) + 1;
  if (needed != NULL) *needed = length;
  if (value == NULL) return kSuccess;
  if (size < length) return kInvalidValue;
  memcpy(value, text, length);
  return kSuccess;
}

static int get_device_ids(struct platform* platform, uint64_t type, unsigned room, void** devices,
                          unsigned* count) {
  (void)platform;
  (void)type;
  (void)room;
  (void)devices;
  if (count != NULL) *count = 0;
  return kDeviceNotFound;
}

static void* g_dispatch[256];
static struct platform g_platform = {g_dispatch};

static int get_platform_ids(unsigned room, struct platform** platforms, unsigned* count) {
  fake_log("", "opencl");
  const int device = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
  if (device >= 0) close(device);
  g_dispatch[0] = (void*)get_platform_ids;
  g_dispatch[1] = (void*)get_platform_info;
  g_dispatch[2] = (void*)get_device_ids;
  if (count != NULL) *count = 1;
  if (platforms != NULL && room > 0) platforms[0] = &g_platform;
  return kSuccess;
}

int clGetPlatformInfo(struct platform* platform, unsigned what, size_t size, void* value,
                      size_t* needed) {
  return get_platform_info(platform, what, size, value, needed);
}

void* clGetExtensionFunctionAddress(const char* name) {
  if (strcmp(name, "clIcdGetPlatformIDsKHR") == 0) return (void*)get_platform_ids;
  if (strcmp(name, "clGetPlatformInfo") == 0) return (void*)get_platform_info;
  return NULL;
}

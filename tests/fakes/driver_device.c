// SPDX-License-Identifier: Apache-2.0
// The fake driver's initialisation and its devices.
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>

#include "driver.h"

static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static int g_owner;  // the process that initialised, or 0
static int g_count;
static struct visible g_visible[kMaxVisible];

int driver_state(void) {
  const int owner = __atomic_load_n(&g_owner, __ATOMIC_ACQUIRE);
  return owner != 0 && owner == getpid() ? kSuccess : kNotInitialized;
}

int visible_count(void) { return g_count; }

const struct visible* visible_device(int device) {
  if (driver_state() != kSuccess || device < 0 || device >= g_count) return NULL;
  return &g_visible[device];
}

int device_state(int device) {
  const int state = driver_state();
  if (state != kSuccess) return state;
  return device >= 0 && device < g_count ? kSuccess : kInvalidDevice;
}

// Like NVIDIA's (tried with 535), cuInit first loads a profiler's library.
static void load_injection(void) {
  static bool loaded;
  const char* path = getenv("CUDA_INJECTION64_PATH");
  if (loaded || path == NULL) return;
  loaded = true;
  void* handle = dlopen(path, RTLD_NOW);
  int (*initialise)(void) =
      handle == NULL ? NULL : (int (*)(void))dlsym(handle, "InitializeInjection");
  if (initialise != NULL) initialise();
}

// Like NVIDIA's, this function alone reads the environment, and reads it again after a failure.
int cuInit(unsigned flags) {
  fake_log("", "cuInit");
  if (flags != 0) return kInvalidValue;
  load_injection();
  // CG_SICK=N simulates a machine without a usable GPU. The driver then fails before it reads a
  // list.
  const char* sick = getenv("CG_SICK");
  if (sick != NULL) return atoi(sick);
  const int owner = __atomic_load_n(&g_owner, __ATOMIC_ACQUIRE);
  if (owner != 0) return owner == getpid() ? kSuccess : kNotInitialized;
  pthread_mutex_lock(&g_lock);
  int answer = kSuccess;
  if (g_owner == 0) {
    g_count = read_visible(g_visible);
    if (g_count == 0) {
      answer = kNoDevice;
    } else {
      fake_log("cuInit:", "initialised");
      __atomic_store_n(&g_owner, getpid(), __ATOMIC_RELEASE);
    }
  }
  pthread_mutex_unlock(&g_lock);
  return answer;
}

int cuDriverGetVersion(int* version) {
  fake_log("", "cuDriverGetVersion");
  if (version == NULL) return kInvalidValue;
  *version = kBoxVersion;
  return kSuccess;
}

int cuDeviceGetCount(int* count) {
  fake_log("", "cuDeviceGetCount");
  const int state = driver_state();
  if (state != kSuccess) return state;
  if (count == NULL) return kInvalidValue;
  *count = g_count;
  return kSuccess;
}

int cuDeviceGet(int* device, int ordinal) {
  fake_log("", "cuDeviceGet");
  const int state = device_state(ordinal);
  if (state != kSuccess) return state;
  if (device == NULL) return kInvalidValue;
  *device = ordinal;
  return kSuccess;
}

// With of_part, the UUID is that of the MIG part in use; otherwise, it is the GPU's.
static int get_uuid(unsigned char* uuid, int device, int of_part) {
  const int state = device_state(device);
  if (state != kSuccess) return state;
  if (uuid == NULL) return kInvalidValue;
  const struct visible* found = visible_device(device);
  box_uuid_bytes(of_part && found->mig >= 0 ? kMig[found->mig].uuid : kBox[found->gpu].uuid, uuid);
  return kSuccess;
}

FAKE(cuDeviceGetUuid, get_uuid(uuid, device, 0), void* uuid, int device)
FAKE(cuDeviceGetUuid_v2, get_uuid(uuid, device, 1), void* uuid, int device)

int cuDeviceGetName(char* name, int size, int device) {
  fake_log("", "cuDeviceGetName");
  const int state = device_state(device);
  if (state != kSuccess) return state;
  if (name == NULL || size <= 0) return kInvalidValue;
  snprintf(name, (size_t)size, "%s", kBox[visible_device(device)->gpu].name);
  return kSuccess;
}

int cuDeviceGetPCIBusId(char* text, int size, int device) {
  fake_log("", "cuDeviceGetPCIBusId");
  const int state = device_state(device);
  if (state != kSuccess) return state;
  if (text == NULL || size < 13) return kInvalidValue;
  snprintf(text, (size_t)size, "0000:%02X:00.0", kBox[visible_device(device)->gpu].bus);
  return kSuccess;
}

int cuDeviceGetByPCIBusId(int* device, const char* text) {
  fake_log("", "cuDeviceGetByPCIBusId");
  const int state = driver_state();
  if (state != kSuccess) return state;
  if (device == NULL || text == NULL) return kInvalidValue;
  const int gpu = box_find_bus(text);
  for (int i = 0; i < g_count; ++i) {
    if (g_visible[i].gpu != gpu) continue;
    *device = i;
    return kSuccess;
  }
  return kInvalidDevice;
}

enum {
  kComputeMode = 20,
  kPciBusId = 33,
  kPciDeviceId = 34,
  kPciDomainId = 50,
  kMajor = 75,
  kMinor = 76
};

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  fake_log("", "cuDeviceGetAttribute");
  const int state = device_state(device);
  if (state != kSuccess) return state;
  if (value == NULL || attribute <= 0) return kInvalidValue;
  switch (attribute) {
    case kPciBusId:
      *value = (int)kBox[visible_device(device)->gpu].bus;
      break;
    case kComputeMode:  // default
    case kPciDeviceId:
    case kPciDomainId:
    case kMinor:
      *value = 0;
      break;
    case kMajor:
      *value = 9;
      break;
    default:
      *value = 1;
  }
  return kSuccess;
}

static int total_memory(size_t* bytes, int device) {
  const int state = device_state(device);
  if (state != kSuccess) return state;
  if (bytes == NULL) return kInvalidValue;
  *bytes = (size_t)(16 + visible_device(device)->gpu) << 30;
  return kSuccess;
}

FAKE(cuDeviceTotalMem, total_memory(bytes, device), size_t* bytes, int device)
FAKE(cuDeviceTotalMem_v2, total_memory(bytes, device), size_t* bytes, int device)

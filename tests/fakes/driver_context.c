// SPDX-License-Identifier: Apache-2.0
// The fake driver's contexts, code and memory. They suffice to see which program creates them, and
// on which GPU.
#include "driver.h"

struct context {
  int device;
};

static struct context g_primary[kMaxVisible];
static int g_retained[kMaxVisible];
static struct context g_created[256];
static unsigned g_next;
static __thread struct context* g_current;

// Records that the process has a context.
static void note_context(void) {
  char path[1024];
  if (box_contexts() == NULL) return;
  snprintf(path, sizeof path, "%s/%d", box_contexts(), getpid());
  const int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (file >= 0) close(file);
}

static int create(struct context** out, int device) {
  const int state = device_state(device);
  if (state != kSuccess) return state;
  if (out == NULL) return kInvalidValue;
  const unsigned slot = __atomic_fetch_add(&g_next, 1, __ATOMIC_RELAXED) % 256;
  g_created[slot].device = device;
  g_current = *out = &g_created[slot];
  note_context();
  return kSuccess;
}

// The arguments are not used, but for where the new context goes, and for its device.
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define CREATES(name, ...) FAKE(name, create(out, device), __VA_ARGS__)
CREATES(cuCtxCreate, struct context** out, unsigned flags, int device)
CREATES(cuCtxCreate_v2, struct context** out, unsigned flags, int device)
CREATES(cuCtxCreate_v3, struct context** out, void* parameters, int count, unsigned flags,
        int device)
CREATES(cuCtxCreate_v4, struct context** out, void* parameters, unsigned flags, int device)
CREATES(cuGLCtxCreate, struct context** out, unsigned flags, int device)
CREATES(cuGLCtxCreate_v2, struct context** out, unsigned flags, int device)
CREATES(cuVDPAUCtxCreate, struct context** out, unsigned flags, int device)
CREATES(cuVDPAUCtxCreate_v2, struct context** out, unsigned flags, int device)
CREATES(cuGreenCtxCreate, struct context** out, void* resources, int device, unsigned flags)

// What these make holds a GPU as a context does.
static int make(void* out) {
  const int state = driver_state();
  if (state != kSuccess) return state;
  if (out == NULL) return kInvalidValue;
  note_context();
  return kSuccess;
}

// The device's index is after two words, as in CUmemAllocationProp and CUmemPoolProps.
static int make_on_device(void* out, const int* properties) {
  const int state = driver_state();
  if (state != kSuccess) return state;
  if (properties == NULL) return kInvalidValue;
  return device_state(properties[3]) == kSuccess ? make(out) : kInvalidDevice;
}

int cuCtxFromGreenCtx(struct context** out, struct context* green) {
  fake_log("", "cuCtxFromGreenCtx");
  const int answer = make(out);
  if (answer == kSuccess) *out = green;
  return answer;
}

FAKE(cuMemCreate, make_on_device(out, properties), uint64_t* out, size_t size,
     const int* properties)
FAKE(cuMemPoolCreate, make_on_device(out, properties), void** out, const int* properties)
FAKE(cuMemImportFromShareableHandle, make(out), uint64_t* out)
FAKE(cuMemPoolImportFromShareableHandle, make(out), void** out)
FAKE(cuMulticastCreate, make(out), uint64_t* out)
FAKE(cuLogicalEndpointCreate, make(properties), unsigned id, void* properties)
FAKE(cuLogicalEndpointImport, make(shared), unsigned id, void* shared)

int cuCtxGetCurrent(struct context** out) {
  fake_log("", "cuCtxGetCurrent");
  const int state = driver_state();
  if (state != kSuccess) return state;
  if (out == NULL) return kInvalidValue;
  *out = g_current;
  return kSuccess;
}

int cuCtxSetCurrent(struct context* context) {
  fake_log("", "cuCtxSetCurrent");
  const int state = driver_state();
  if (state == kSuccess) g_current = context;
  return state;
}

int cuCtxGetDevice(int* device) {
  fake_log("", "cuCtxGetDevice");
  const int state = driver_state();
  if (state != kSuccess) return state;
  if (g_current == NULL) return kInvalidContext;
  *device = g_current->device;
  return kSuccess;
}

int cuDevicePrimaryCtxRetain(struct context** out, int device) {
  fake_log("", "cuDevicePrimaryCtxRetain");
  const int state = device_state(device);
  if (state != kSuccess) return state;
  if (out == NULL) return kInvalidValue;
  __atomic_fetch_add(&g_retained[device], 1, __ATOMIC_RELAXED);
  g_primary[device].device = device;
  *out = &g_primary[device];
  note_context();
  return kSuccess;
}

int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  fake_log("", "cuDevicePrimaryCtxGetState");
  const int state = device_state(device);
  if (state != kSuccess) return state;
  *flags = 0;
  *active = g_retained[device] > 0;
  return kSuccess;
}

static int g_code;

// A module is loaded into the current context, but a library into none.
static int load(void** out, const void* image, int needs_context) {
  const int state = driver_state();
  if (state != kSuccess) return state;
  if (out == NULL || image == NULL) return kInvalidValue;
  if (needs_context && g_current == NULL) return kInvalidContext;
  *out = &g_code;
  return kSuccess;
}

FAKE(cuModuleLoad, load(out, image, 1), void** out, const void* image)
FAKE(cuModuleLoadData, load(out, image, 1), void** out, const void* image)
FAKE(cuModuleLoadDataEx, load(out, image, 1), void** out, const void* image)
FAKE(cuModuleLoadFatBinary, load(out, image, 1), void** out, const void* image)

// The last arguments of the next two calls are passed on the stack, so a wrapper that loses them
// fails here.
static int load_library(void** out, const void* image, const void* options, unsigned count) {
  if (count != 0 && (options == NULL || *(const unsigned*)options != count)) return kInvalidValue;
  return load(out, image, 0);
}
FAKE(cuLibraryLoadData, load_library(out, image, library_options, library_count), void** out,
     const void* image, void* options, void** values, unsigned count, void* library_options,
     void** library_values, unsigned library_count)
FAKE(cuLibraryLoadFromFile, load_library(out, image, library_options, library_count), void** out,
     const void* image, void* options, void** values, unsigned count, void* library_options,
     void** library_values, unsigned library_count)

static int allocate(uint64_t* address, size_t size) {
  const int state = driver_state();
  if (state != kSuccess) return state;
  if (g_current == NULL) return kInvalidContext;
  if (address == NULL || size == 0) return kInvalidValue;
  *address = (uint64_t)(uintptr_t)malloc(size);
  return *address == 0 ? kOutOfMemory : kSuccess;
}

static int copy(void* to, const void* from, size_t size) {
  if (driver_state() == kSuccess) memcpy(to, from, size);
  return driver_state();
}

FAKE(cuMemAlloc_v2, allocate(address, size), uint64_t* address, size_t size)
FAKE(cuMemcpyHtoD_v2, copy((void*)(uintptr_t)to, from, size), uint64_t to, const void* from,
     size_t size)
FAKE(cuMemcpyDtoH_v2, copy(to, (const void*)(uintptr_t)from, size), void* to, uint64_t from,
     size_t size)

int cuMemFree_v2(uint64_t address) {
  fake_log("", "cuMemFree_v2");
  if (driver_state() == kSuccess) free((void*)(uintptr_t)address);
  return driver_state();
}

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

int cuCtxCreate(struct context** out, unsigned flags, int device) {
  (void)flags;
  fake_log("", "cuCtxCreate");
  return create(out, device);
}

int cuCtxCreate_v2(struct context** out, unsigned flags, int device) {
  (void)flags;
  fake_log("", "cuCtxCreate_v2");
  return create(out, device);
}

int cuCtxCreate_v3(struct context** out, void* parameters, int count, unsigned flags, int device) {
  (void)parameters;
  (void)count;
  (void)flags;
  fake_log("", "cuCtxCreate_v3");
  return create(out, device);
}

int cuCtxCreate_v4(struct context** out, void* parameters, unsigned flags, int device) {
  (void)parameters;
  (void)flags;
  fake_log("", "cuCtxCreate_v4");
  return create(out, device);
}

int cuGLCtxCreate(struct context** out, unsigned flags, int device) {
  (void)flags;
  fake_log("", "cuGLCtxCreate");
  return create(out, device);
}

int cuGLCtxCreate_v2(struct context** out, unsigned flags, int device) {
  (void)flags;
  fake_log("", "cuGLCtxCreate_v2");
  return create(out, device);
}

int cuVDPAUCtxCreate(struct context** out, unsigned flags, int device, unsigned vdp_device,
                     void* vdp) {
  (void)flags;
  (void)vdp_device;
  (void)vdp;
  fake_log("", "cuVDPAUCtxCreate");
  return create(out, device);
}

int cuVDPAUCtxCreate_v2(struct context** out, unsigned flags, int device, unsigned vdp_device,
                        void* vdp) {
  (void)flags;
  (void)vdp_device;
  (void)vdp;
  fake_log("", "cuVDPAUCtxCreate_v2");
  return create(out, device);
}

int cuGreenCtxCreate(struct context** out, void* resources, int device, unsigned flags) {
  (void)resources;
  (void)flags;
  fake_log("", "cuGreenCtxCreate");
  return create(out, device);
}

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

int cuMemCreate(uint64_t* handle, size_t size, const int* properties, uint64_t flags) {
  (void)size;
  (void)flags;
  fake_log("", "cuMemCreate");
  return make_on_device(handle, properties);
}

int cuMemImportFromShareableHandle(uint64_t* handle, void* shared, int type) {
  (void)shared;
  (void)type;
  fake_log("", "cuMemImportFromShareableHandle");
  return make(handle);
}

int cuMemPoolCreate(void** pool, const int* properties) {
  fake_log("", "cuMemPoolCreate");
  return make_on_device(pool, properties);
}

int cuMemPoolImportFromShareableHandle(void** pool, void* shared, int type, uint64_t flags) {
  (void)shared;
  (void)type;
  (void)flags;
  fake_log("", "cuMemPoolImportFromShareableHandle");
  return make(pool);
}

int cuMulticastCreate(uint64_t* handle, const void* properties) {
  (void)properties;
  fake_log("", "cuMulticastCreate");
  return make(handle);
}

int cuLogicalEndpointCreate(unsigned id, void* properties) {
  (void)id;
  fake_log("", "cuLogicalEndpointCreate");
  return make(properties);
}

int cuLogicalEndpointImport(unsigned id, void* shared, int type) {
  (void)id;
  (void)type;
  fake_log("", "cuLogicalEndpointImport");
  return make(shared);
}

static int destroy(struct context* context) {
  const int state = driver_state();
  if (state != kSuccess) return state;
  if (context == NULL) return kInvalidContext;
  if (g_current == context) g_current = NULL;
  return kSuccess;
}

int cuCtxDestroy(struct context* context) {
  fake_log("", "cuCtxDestroy");
  return destroy(context);
}

int cuCtxDestroy_v2(struct context* context) {
  fake_log("", "cuCtxDestroy_v2");
  return destroy(context);
}

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

static int release(int device) {
  const int state = device_state(device);
  if (state != kSuccess) return state;
  return __atomic_fetch_sub(&g_retained[device], 1, __ATOMIC_RELAXED) > 0 ? kSuccess
                                                                          : kInvalidContext;
}

int cuDevicePrimaryCtxRelease(int device) {
  fake_log("", "cuDevicePrimaryCtxRelease");
  return release(device);
}

int cuDevicePrimaryCtxRelease_v2(int device) {
  fake_log("", "cuDevicePrimaryCtxRelease_v2");
  return release(device);
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

int cuModuleLoad(void** out, const char* path) {
  fake_log("", "cuModuleLoad");
  return load(out, path, 1);
}

int cuModuleLoadData(void** out, const void* image) {
  fake_log("", "cuModuleLoadData");
  return load(out, image, 1);
}

int cuModuleLoadDataEx(void** out, const void* image, unsigned count, void* options,
                       void** values) {
  (void)count;
  (void)options;
  (void)values;
  fake_log("", "cuModuleLoadDataEx");
  return load(out, image, 1);
}

int cuModuleLoadFatBinary(void** out, const void* image) {
  fake_log("", "cuModuleLoadFatBinary");
  return load(out, image, 1);
}

// The last arguments of the next two calls are passed on the stack, so a wrapper that loses them
// fails here.
static int options_are_whole(const void* options, unsigned count) {
  return count == 0 || (options != NULL && *(const unsigned*)options == count);
}

int cuLibraryLoadData(void** out, const void* image, void* options, void** values, unsigned count,
                      void* library_options, void** library_values, unsigned library_count) {
  (void)options;
  (void)values;
  (void)count;
  (void)library_values;
  fake_log("", "cuLibraryLoadData");
  if (!options_are_whole(library_options, library_count)) return kInvalidValue;
  return load(out, image, 0);
}

int cuLibraryLoadFromFile(void** out, const char* path, void* options, void** values,
                          unsigned count, void* library_options, void** library_values,
                          unsigned library_count) {
  (void)options;
  (void)values;
  (void)count;
  (void)library_values;
  fake_log("", "cuLibraryLoadFromFile");
  if (!options_are_whole(library_options, library_count)) return kInvalidValue;
  return load(out, path, 0);
}

static int allocate(uint64_t* address, size_t size) {
  const int state = driver_state();
  if (state != kSuccess) return state;
  if (g_current == NULL) return kInvalidContext;
  if (address == NULL || size == 0) return kInvalidValue;
  *address = (uint64_t)(uintptr_t)malloc(size);
  return *address == 0 ? kOutOfMemory : kSuccess;
}

int cuMemAlloc_v2(uint64_t* address, size_t size) {
  fake_log("", "cuMemAlloc_v2");
  return allocate(address, size);
}

int cuMemFree_v2(uint64_t address) {
  fake_log("", "cuMemFree_v2");
  if (driver_state() == kSuccess) free((void*)(uintptr_t)address);
  return driver_state();
}

int cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t size) {
  fake_log("", "cuMemcpyHtoD_v2");
  if (driver_state() == kSuccess) memcpy((void*)(uintptr_t)to, from, size);
  return driver_state();
}

int cuMemcpyDtoH_v2(void* to, uint64_t from, size_t size) {
  fake_log("", "cuMemcpyDtoH_v2");
  if (driver_state() == kSuccess) memcpy(to, (const void*)(uintptr_t)from, size);
  return driver_state();
}

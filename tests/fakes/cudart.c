// SPDX-License-Identifier: Apache-2.0
// A fake shared runtime of major version MAJOR. Like NVIDIA's, it looks up one name in the driver's
// library, cuGetProcAddress_v2, and gets everything else from that function. It initialises the
// driver once and keeps the answer. Its last error belongs to the thread, and a success does not
// clear it.
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "fake_log.h"

#define TEXT(x) #x
#define NUMBER(x) TEXT(x)
#define LOG(name) fake_log("cudart" NUMBER(MAJOR) ":", name)
// A function with these parameters that logs its name and gives this answer.
#define RUNTIME(name, answer, ...) \
  int name(__VA_ARGS__) {          \
    LOG(#name);                    \
    return answer;                 \
  }

enum {
  kSuccess = 0,
  kInvalidValue = 1,
  kInsufficientDriver = 35,
  kNoSymbol = 36,
  kInvalidDevice = 101,
};

#define DRIVER(X)                            \
  X(cuInit, (unsigned))                      \
  X(cuDriverGetVersion, (int*))              \
  X(cuDeviceGetCount, (int*))                \
  X(cuDeviceGet, (int*, int))                \
  X(cuDeviceGetName, (char*, int, int))      \
  X(cuDeviceGetUuid, (void*, int))           \
  X(cuDeviceGetAttribute, (int*, int, int))  \
  X(cuDevicePrimaryCtxRetain, (void**, int)) \
  X(cuCtxSetCurrent, (void*))                \
  X(cuLibraryLoadData, (void**, const void*, void*, void**, unsigned, void*, void**, unsigned))

static struct {
#define X(name, parameters) int(*name) parameters;
  DRIVER(X)
#undef X
} g_driver;

static pthread_once_t g_once = PTHREAD_ONCE_INIT;
static int g_start;  // the result of this runtime's start
static int g_count;
static int g_devices[64];
static int g_loaded;
static __thread int g_device;
static __thread int g_last_error;

static void start(void) {
  typedef int (*get_proc)(const char*, void**, int, uint64_t, int*);
  g_start = kInsufficientDriver;
  void* handle = dlopen("libcuda.so.1", RTLD_NOW);
  if (handle == NULL) return;
  const get_proc find = (get_proc)dlsym(handle, "cuGetProcAddress_v2");
  if (find == NULL) return;
#define X(name, parameters) \
  if (find(#name, (void**)&g_driver.name, MAJOR * 1000, 0, NULL) != 0) g_driver.name = NULL;
  DRIVER(X)
#undef X
  int version = 0;
  if (g_driver.cuDriverGetVersion == NULL || g_driver.cuDriverGetVersion(&version) != 0 ||
      version < MAJOR * 1000) {
    return;
  }
  g_start = kNoSymbol;
  if (g_driver.cuInit == NULL || g_driver.cuDeviceGetCount == NULL) return;
  g_start = g_driver.cuInit(0);
  if (g_start == 0) g_start = g_driver.cuDeviceGetCount(&g_count);
  for (int i = 0; g_start == 0 && i < g_count; ++i) {
    g_start = g_driver.cuDeviceGet(&g_devices[i], i);
  }
}

// Every call ends here. A success leaves the last error as it is.
static int finish(int answer) {
  if (answer != kSuccess) g_last_error = answer;
  return answer;
}

static int ready(void) {
  pthread_once(&g_once, start);
  return g_start;
}

static int check_device(int device) {
  const int answer = ready();
  if (answer != kSuccess) return answer;
  const char* failed = getenv("CG_FAILED");  // a device that failed after it was counted
  if (failed != NULL && device == atoi(failed)) return kInvalidDevice;
  return device >= 0 && device < g_count ? kSuccess : kInvalidDevice;
}

static int use_device(int device) {
  void* context = NULL;
  const int answer = g_driver.cuDevicePrimaryCtxRetain(&context, g_devices[device]);
  return answer != kSuccess ? answer : g_driver.cuCtxSetCurrent(context);
}

int cudaGetDeviceCount(int* count) {
  LOG("cudaGetDeviceCount");
  const int answer = ready();
  if (answer == kSuccess) *count = g_count;
  return finish(answer);
}

int cudaSetDevice(int device) {
  LOG("cudaSetDevice");
  int answer = check_device(device);
  // Since CUDA 12, this call creates the context.
  if (answer == kSuccess) answer = use_device(device);
  if (answer == kSuccess) g_device = device;
  return finish(answer);
}

int cudaGetDevice(int* device) {
  LOG("cudaGetDevice");
  const int answer = ready();
  if (answer == kSuccess) *device = g_device;
  return finish(answer);
}

int cudaInitDevice(int device, unsigned device_flags, unsigned flags) {
  LOG("cudaInitDevice");
  int answer = check_device(device);
  // The caller's three arguments must arrive unchanged.
  if (answer == kSuccess && (device_flags != 8 || flags != 1)) answer = kInvalidValue;
  if (answer == kSuccess) answer = use_device(device);
  return finish(answer);
}

// cudaDeviceProp begins with these fields in every major version.
struct properties {
  char name[256];
  unsigned char uuid[16];
};

static int get_properties(struct properties* out, int device) {
  int answer = check_device(device);
  if (answer == kSuccess && out == NULL) answer = kInvalidValue;
  if (answer == kSuccess) answer = g_driver.cuDeviceGetName(out->name, 256, g_devices[device]);
  if (answer == kSuccess) answer = g_driver.cuDeviceGetUuid(out->uuid, g_devices[device]);
  return finish(answer);
}

RUNTIME(cudaGetDeviceProperties, get_properties(out, device), struct properties* out, int device)

#if MAJOR == 12
RUNTIME(cudaGetDeviceProperties_v2, get_properties(out, device), struct properties* out, int device)
#endif

int cudaDeviceGetAttribute(int* value, int attribute, int device) {
  LOG("cudaDeviceGetAttribute");
  int answer = check_device(device);
  if (answer == kSuccess) {
    answer = g_driver.cuDeviceGetAttribute(value, attribute, g_devices[device]);
  }
  return finish(answer);
}

int cudaDeviceSynchronize(void) {
  LOG("cudaDeviceSynchronize");
  int answer = ready();
  if (answer == kSuccess) answer = use_device(g_device);
  if (answer == kSuccess && __atomic_exchange_n(&g_loaded, 1, __ATOMIC_ACQ_REL) == 0) {
    unsigned options = 1;
    void* library = NULL;
    answer = g_driver.cuLibraryLoadData(&library, "code", NULL, NULL, 0, &options, NULL, 1);
  }
  return finish(answer);
}

int cudaFree(void* memory) {
  LOG("cudaFree");
  int answer = ready();
  if (answer == kSuccess && memory != NULL) answer = kInvalidValue;
  if (answer == kSuccess) answer = use_device(g_device);
  return finish(answer);
}

int cudaGetLastError(void) {
  LOG("cudaGetLastError");
  const int answer = g_last_error;
  // The runtime repeats the error of a failed start in every later call.
  g_last_error = g_start != kSuccess ? g_last_error : kSuccess;
  return answer;
}

RUNTIME(cudaPeekAtLastError, g_last_error, void)

int cudaRuntimeGetVersion(int* version) {
  LOG("cudaRuntimeGetVersion");
  *version = MAJOR * 1000;
  return kSuccess;
}

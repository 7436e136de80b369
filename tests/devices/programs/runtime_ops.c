// SPDX-License-Identifier: Apache-2.0
// Calls the runtime that this object is linked to, in a program or in a plug-in.
#include "ops.h"

#define EXPORT __attribute__((visibility("default")))

int cudaGetDeviceCount(int* count);
int cudaSetDevice(int device);
int cudaGetDevice(int* device);
int cudaInitDevice(int device, unsigned device_flags, unsigned flags);
int cudaGetDeviceProperties(void* out, int device);
#if MAJOR == 12
int cudaGetDeviceProperties_v2(void* out, int device);
#endif
int cudaDeviceGetAttribute(int* value, int attribute, int device);
int cudaDeviceSynchronize(void);
int cudaGetLastError(void);
int cudaPeekAtLastError(void);
int cudaFree(void* memory);
int cudaRuntimeGetVersion(int* version);

static void properties(struct answer* out, int device, int newer) {
  struct {
    char name[256];
    unsigned char uuid[16];
    char room[2048];
  } found = {.name = ""};
#if MAJOR == 12
  const int answer =
      newer ? cudaGetDeviceProperties_v2(&found, device) : cudaGetDeviceProperties(&found, device);
#else
  (void)newer;
  const int answer = cudaGetDeviceProperties(&found, device);
#endif
  put(out, "%d:", answer);
  if (answer == 0) {
    put_uuid(out, found.uuid);
    put(out, ":");
    put_word(out, found.name);
  }
}

static void see(struct answer* out) {
  int count = -7;
  const int answer = cudaGetDeviceCount(&count);
  put(out, "%d:%d:", answer, count);
  for (int i = 0; answer == 0 && i < count; ++i) {
    struct answer one = {.used = 0};
    properties(&one, i, i % 2);
    const char* uuid = strchr(one.text, ':');
    if (one.text[0] != '0') {
      put(out, "!%s", one.text);
    } else {
      put(out, i == 0 ? "%.36s" : ",%.36s", uuid + 1);
    }
  }
}

enum { kComputeMode = 20, kPciBusId = 33 };

EXPORT int runtime_step(const char* name, const char* value, struct answer* out) {
  if (strncmp(name, "rt.", 3) != 0) return 0;
  name += 3;
  const int device = (int)strtol(value, NULL, 10);
  int number = -7;
  if (strcmp(name, "see") == 0) {
    see(out);
  } else if (strcmp(name, "count") == 0) {
    const int answer = cudaGetDeviceCount(&number);
    put(out, "%d:%d", answer, number);
  } else if (strcmp(name, "set") == 0) {
    put(out, "%d", cudaSetDevice(device));
  } else if (strcmp(name, "current") == 0) {
    const int answer = cudaGetDevice(&number);
    put(out, "%d:%d", answer, number);
  } else if (strcmp(name, "initdevice") == 0) {
    put(out, "%d", cudaInitDevice(device, 8, 1));
  } else if (strcmp(name, "properties") == 0) {
    properties(out, device, 0);
  } else if (strcmp(name, "properties2") == 0) {
    properties(out, device, 1);
  } else if (strcmp(name, "attribute") == 0) {
    const int answer = cudaDeviceGetAttribute(&number, kPciBusId, device);
    put(out, "%d:%d", answer, number);
  } else if (strcmp(name, "mode") == 0) {
    const int answer = cudaDeviceGetAttribute(&number, kComputeMode, device);
    put(out, "%d:%d", answer, number);
  } else if (strcmp(name, "sync") == 0) {
    put(out, "%d", cudaDeviceSynchronize());
  } else if (strcmp(name, "free") == 0) {
    put(out, "%d", cudaFree((void*)(intptr_t)device));
  } else if (strcmp(name, "last") == 0) {
    put(out, "%d", cudaGetLastError());
  } else if (strcmp(name, "peek") == 0) {
    put(out, "%d", cudaPeekAtLastError());
  } else {
    return 0;
  }
  return 1;
}

// SPDX-License-Identifier: Apache-2.0
// A fake driver and, with -DNVML, a fake NVML of a machine with one GPU, for the test of gpu-check:
// each process with a context takes 500 MiB. A context is a file $KEPT_CONTEXTS/<pid>. With
// KEPT_TAMPERED a process with our guard in it is told 103, as by a runtime that finds its driver
// changed.
#include <dirent.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char kUuid[] = "GPU-42424242-4242-4242-4242-424242424242";

#ifdef NVML

struct memory {
  unsigned long long total, free, used;
};

struct process {
  unsigned pid;
  unsigned long long used;
  unsigned instance, compute_instance;
};

static int g_device;

int nvmlInit_v2(void) { return 0; }
int nvmlInit(void) { return 0; }
int nvmlInitWithFlags(unsigned flags) { return (int)flags; }
int nvmlShutdown(void) { return 0; }

int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 1;
  return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = &g_device;
  return index == 0 ? 0 : 2;
}

int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  *device = &g_device;
  return strcmp(uuid, kUuid) == 0 ? 0 : 6;
}

int nvmlDeviceGetUUID(void* device, char* uuid, unsigned size) {
  (void)device;
  return snprintf(uuid, size, "%s", kUuid) > 0 ? 0 : 2;
}

int nvmlDeviceGetName(void* device, char* name, unsigned size) {
  (void)device;
  return snprintf(name, size, "One GPU") > 0 ? 0 : 2;
}

int nvmlDeviceGetIndex(void* device, unsigned* index) {
  (void)device;
  *index = 0;
  return 0;
}

// The living processes with a context.
static unsigned living(struct process* list, unsigned room) {
  unsigned count = 0;
  const char* path = getenv("KEPT_CONTEXTS");
  DIR* folder = path == NULL ? NULL : opendir(path);
  if (folder == NULL) return 0;
  for (struct dirent* entry; (entry = readdir(folder)) != NULL;) {
    const int pid = atoi(entry->d_name);
    if (pid <= 0 || kill(pid, 0) != 0) continue;
    if (list != NULL && count < room) list[count].pid = (unsigned)pid;
    ++count;
  }
  closedir(folder);
  return count;
}

int nvmlDeviceGetMemoryInfo(void* device, struct memory* memory) {
  (void)device;
  memory->total = 80ULL << 30;
  memory->used = (unsigned long long)living(NULL, 0) * (500U << 20);
  memory->free = memory->total - memory->used;
  return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, struct process* list) {
  (void)device;
  *count = living(list, *count);
  return 0;
}

#else

static int g_count;

int cuInit(unsigned flags) {
  (void)flags;
  const char* preload = getenv("LD_PRELOAD");
  if (getenv("KEPT_TAMPERED") != NULL && preload != NULL && strstr(preload, "cudaguard") != NULL) {
    return 103;
  }
  const char* visible = getenv("CUDA_VISIBLE_DEVICES");
  g_count = visible == NULL || strcmp(visible, "0") == 0 || strcmp(visible, kUuid) == 0;
  return g_count == 1 ? 0 : 100;
}

int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}

int cuDeviceGetCount(int* count) {
  *count = g_count;
  return g_count == 1 ? 0 : 3;
}

int cuDeviceGet(int* device, int index) {
  if (index != 0) return 101;
  *device = 0;
  return 0;
}

int cuDeviceGetUuid(void* uuid, int device) {
  memset(uuid, 0x42, 16);
  return device;
}

int cuDevicePrimaryCtxRetain(void** context, int device) {
  char path[1024];
  snprintf(path, sizeof path, "%s/%d", getenv("KEPT_CONTEXTS"), getpid());
  FILE* file = fopen(path, "we");
  if (file == NULL) return 2;
  fclose(file);
  *context = &g_count;
  return device;
}

int cuCtxSetCurrent(void* context) { return context == NULL; }

static const struct {
  const char* name;
  void* function;
} kNames[] = {
    {"cuInit", cuInit},
    {"cuDriverGetVersion", cuDriverGetVersion},
    {"cuDeviceGetCount", cuDeviceGetCount},
    {"cuDeviceGet", cuDeviceGet},
    {"cuDeviceGetUuid", cuDeviceGetUuid},
    {"cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain},
    {"cuCtxSetCurrent", cuCtxSetCurrent},
};

int cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags,
                        int* status) {
  (void)version;
  (void)flags;
  *function = NULL;
  for (size_t i = 0; i < sizeof kNames / sizeof *kNames; ++i) {
    if (strcmp(name, kNames[i].name) == 0) *function = kNames[i].function;
  }
  if (status != NULL) *status = *function == NULL;
  return 0;
}

#endif

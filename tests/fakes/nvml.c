// SPDX-License-Identifier: Apache-2.0
// The fake NVML has the same GPUs, always in PCI order, and reads no CUDA variable. With CG_LOST=n
// it counts GPU n but refuses its handle, like a GPU that fell off the bus. With CG_SICK it cannot
// be initialised. With CG_EMPTY it can, but has no GPU.
#include <dirent.h>
#include <signal.h>
#include <stddef.h>

#include "box.h"
#include "fake_log.h"

enum {
  kSuccess = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNotFound = 6,
  kInsufficientSize = 7,
  kDriverNotLoaded = 9,
  kGpuIsLost = 15,
  kUnknown = 999,
};

extern int fake_nvml_users __attribute__((visibility("hidden")));
int fake_nvml_users;

// A handle points to one of these: a GPU or a MIG part.
struct device {
  char unused;
};
static struct device g_gpus[kGpus];
static struct device g_migs[kMigs];

static int gpu_of(const struct device* device) {
  return device >= g_gpus && device < g_gpus + kGpus ? (int)(device - g_gpus) : -1;
}

static int mig_of(const struct device* device) {
  return device >= g_migs && device < g_migs + kMigs ? (int)(device - g_migs) : -1;
}

static int is_empty(void) { return getenv("CG_EMPTY") != NULL; }

static int users(int change) {
  return __atomic_add_fetch(&fake_nvml_users, change, __ATOMIC_ACQ_REL);
}

// As in NVIDIA's library (535), older forms of functions call the newer forms through their PLT
// entries, so a preloaded library's function is called first. nvmlInit calls nvmlInit_v2, but
// nvmlInit_v2 jumps, so the callee sees the return address of nvmlInit_v2's own caller.
int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  fake_log("", "nvmlInitWithFlags");
  if (getenv("CG_SICK") != NULL && !is_empty()) return kDriverNotLoaded;
  users(1);
  return kSuccess;
}

int nvmlInit_v2(void) {
  fake_log("", "nvmlInit_v2");
  return nvmlInitWithFlags(0);
}

int nvmlInit(void) {
  fake_log("", "nvmlInit");
  const int result = nvmlInit_v2();
  __asm__ volatile("");  // forces a call instead of a jump
  return result;
}

int nvmlShutdown(void) {
  fake_log("", "nvmlShutdown");
  if (users(0) == 0) return kUninitialized;
  users(-1);
  return kSuccess;
}

// Every other function begins with this. It logs the call and returns if NVML is not initialised.
#define ENTER(name)    \
  fake_log("", #name); \
  if (users(0) == 0) return kUninitialized

// A function with these parameters that gives this answer.
#define NVML(name, answer, ...) \
  int name(__VA_ARGS__) {       \
    ENTER(name);                \
    return answer;              \
  }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device** out);

// The old form gets each GPU from the newer function and counts the GPUs that it gets.
int nvmlDeviceGetCount(unsigned* count) {
  ENTER(nvmlDeviceGetCount);
  if (count == NULL) return kInvalidArgument;
  *count = 0;
  for (unsigned i = 0; i < kGpus; ++i) {
    struct device* device = NULL;
    if (nvmlDeviceGetHandleByIndex_v2(i, &device) == kSuccess) ++*count;
  }
  return kSuccess;
}

int nvmlDeviceGetCount_v2(unsigned* count) {
  ENTER(nvmlDeviceGetCount_v2);
  if (count == NULL) return kInvalidArgument;
  *count = is_empty() ? 0 : kGpus;
  return kSuccess;
}

static int hand_out(int gpu, int error, struct device** out) {
  if (out == NULL) return kInvalidArgument;
  if (gpu < 0 || is_empty()) return error;
  const char* lost = getenv("CG_LOST");
  if (lost != NULL && atoi(lost) == gpu) return kGpuIsLost;
  *out = &g_gpus[gpu];
  return kSuccess;
}

NVML(nvmlDeviceGetHandleByIndex_v2,
     hand_out(index < kGpus ? (int)index : -1, kInvalidArgument, out), unsigned index,
     struct device** out)

NVML(nvmlDeviceGetHandleByIndex, nvmlDeviceGetHandleByIndex_v2(index, out), unsigned index,
     struct device** out)

static int by_uuid(const char* text, struct device** out) {
  if (text == NULL || out == NULL) return kInvalidArgument;
  for (int i = 0; i < kMigs && box_has_mig(); ++i) {
    if (strncmp(text, "MIG-", 4) != 0 || strcmp(text + 4, kMig[i].uuid) != 0) continue;
    *out = &g_migs[i];
    return kSuccess;
  }
  int found = -1;
  for (int i = 0; i < kGpus && strncmp(text, "GPU-", 4) == 0; ++i) {
    if (strcmp(text + 4, kBox[i].uuid) == 0) found = i;
  }
  return hand_out(found, kNotFound, out);
}

NVML(nvmlDeviceGetHandleByUUID, by_uuid(text, out), const char* text, struct device** out)

// CUDA 12's form of a UUID. Type 1 is text, type 2 the bytes.
struct uuid_value {
  unsigned version;
  unsigned type;
  char value[41];
};

int nvmlDeviceGetHandleByUUIDV(const struct uuid_value* uuid, struct device** out) {
  ENTER(nvmlDeviceGetHandleByUUIDV);
  if (uuid == NULL) return kInvalidArgument;
  if (uuid->type == 1) return by_uuid(uuid->value, out);
  if (uuid->type != 2) return kInvalidArgument;
  int found = -1;
  for (int i = 0; i < kGpus; ++i) {
    unsigned char bytes[16];
    box_uuid_bytes(kBox[i].uuid, bytes);
    if (memcmp(bytes, uuid->value, sizeof bytes) == 0) found = i;
  }
  return hand_out(found, kNotFound, out);
}

int nvmlDeviceGetHandleBySerial(const char* serial, struct device** out) {
  ENTER(nvmlDeviceGetHandleBySerial);
  int found = -1;
  for (int i = 0; i < kGpus && serial != NULL; ++i) {
    if (strcmp(serial, kBox[i].serial) == 0) found = i;
  }
  return hand_out(found, serial == NULL ? kInvalidArgument : kNotFound, out);
}

NVML(nvmlDeviceGetHandleByPciBusId,
     hand_out(box_find_bus(text), text == NULL ? kInvalidArgument : kNotFound, out),
     const char* text, struct device** out)

NVML(nvmlDeviceGetHandleByPciBusId_v2,
     hand_out(box_find_bus(text), text == NULL ? kInvalidArgument : kNotFound, out),
     const char* text, struct device** out)

int nvmlDeviceGetIndex(struct device* device, unsigned* index) {
  ENTER(nvmlDeviceGetIndex);
  if (index == NULL || (gpu_of(device) < 0 && mig_of(device) < 0)) return kInvalidArgument;
  *index = gpu_of(device) >= 0 ? (unsigned)gpu_of(device) : kMig[mig_of(device)].slot;
  return kSuccess;
}

static int put_text(char* out, unsigned size, const char* prefix, const char* text) {
  if (out == NULL) return kInvalidArgument;
  if (strlen(prefix) + strlen(text) >= size) return kInsufficientSize;
  snprintf(out, size, "%s%s", prefix, text);
  return kSuccess;
}

int nvmlDeviceGetUUID(struct device* device, char* out, unsigned size) {
  ENTER(nvmlDeviceGetUUID);
  if (gpu_of(device) >= 0) return put_text(out, size, "GPU-", kBox[gpu_of(device)].uuid);
  if (mig_of(device) >= 0) return put_text(out, size, "MIG-", kMig[mig_of(device)].uuid);
  return kInvalidArgument;
}

int nvmlDeviceGetSerial(struct device* device, char* out, unsigned size) {
  ENTER(nvmlDeviceGetSerial);
  if (gpu_of(device) < 0) return kInvalidArgument;
  return put_text(out, size, "", kBox[gpu_of(device)].serial);
}

int nvmlDeviceGetName(struct device* device, char* out, unsigned size) {
  ENTER(nvmlDeviceGetName);
  if (gpu_of(device) < 0) return kInvalidArgument;
  return put_text(out, size, "", kBox[gpu_of(device)].name);
}

// This is nvmlPciInfo_t.
struct pci_info {
  char short_id[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned device_id;
  unsigned subsystem_id;
  char id[32];
};

int nvmlDeviceGetPciInfo_v3(struct device* device, struct pci_info* out) {
  ENTER(nvmlDeviceGetPciInfo_v3);
  if (gpu_of(device) < 0 || out == NULL) return kInvalidArgument;
  const unsigned bus = kBox[gpu_of(device)].bus;
  memset(out, 0, sizeof *out);
  snprintf(out->short_id, sizeof out->short_id, "0000:%02X:00.0", bus);
  out->bus = bus;
  out->device_id = 0x233010de;
  snprintf(out->id, sizeof out->id, "00000000:%02X:00.0", bus);
  return kSuccess;
}

int nvmlDeviceGetMaxMigDeviceCount(struct device* device, unsigned* count) {
  ENTER(nvmlDeviceGetMaxMigDeviceCount);
  if (gpu_of(device) < 0 || count == NULL) return kInvalidArgument;
  if (!box_has_mig()) return kNotSupported;
  *count = gpu_of(device) == kMig[0].gpu ? 7 : 0;
  return kSuccess;
}

int nvmlDeviceGetMigDeviceHandleByIndex(struct device* device, unsigned slot, struct device** out) {
  ENTER(nvmlDeviceGetMigDeviceHandleByIndex);
  if (gpu_of(device) < 0 || out == NULL) return kInvalidArgument;
  if (!box_has_mig() || gpu_of(device) != kMig[0].gpu) return kNotSupported;
  for (int i = 0; i < kMigs; ++i) {
    if (kMig[i].slot != slot) continue;
    *out = &g_migs[i];
    return kSuccess;
  }
  return slot < 7 ? kNotFound : kInvalidArgument;
}

int nvmlDeviceIsMigDeviceHandle(struct device* device, unsigned* is_mig) {
  ENTER(nvmlDeviceIsMigDeviceHandle);
  if (is_mig == NULL || (gpu_of(device) < 0 && mig_of(device) < 0)) return kInvalidArgument;
  *is_mig = mig_of(device) >= 0;
  return kSuccess;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(struct device* mig, struct device** out) {
  ENTER(nvmlDeviceGetDeviceHandleFromMigDeviceHandle);
  if (mig_of(mig) < 0) return kInvalidArgument;
  return hand_out(kMig[mig_of(mig)].gpu, kInvalidArgument, out);
}

// Returns a list the way NVML does: without an array, or with a count of 0, it returns the required
// length.
static int give(int first, int last, int left_out, unsigned* count, struct device** array) {
  if (count == NULL) return kInvalidArgument;
  unsigned found = 0;
  for (int i = first; i < last && i < kGpus; ++i) {
    if (i == left_out) continue;
    if (array != NULL && found < *count) array[found] = &g_gpus[i];
    ++found;
  }
  const int short_array = array != NULL && *count != 0 && *count < found;
  *count = found;
  return short_array ? kInsufficientSize : kSuccess;
}

enum { kSameNode = 40, kSameSystem = 50 };

// GPUs 0 to 3 are attached to one processor, 4 to 7 to the other.
int nvmlDeviceGetTopologyNearestGpus(struct device* device, int level, unsigned* count,
                                     struct device** array) {
  ENTER(nvmlDeviceGetTopologyNearestGpus);
  const int gpu = gpu_of(device);
  if (gpu < 0) return kInvalidArgument;
  const int own = gpu < 4 ? 0 : 4;
  if (level == kSameNode) return give(own, own + 4, gpu, count, array);
  if (level == kSameSystem) return give(4 - own, 8 - own, -1, count, array);
  return give(0, 0, -1, count, array);
}

NVML(nvmlSystemGetTopologyGpuSet,
     processor == 0 ? give(0, 4, -1, count, array) : give(4, 8, -1, count, array),
     unsigned processor, unsigned* count, struct device** array)

struct memory {
  unsigned long long total, free, used;
};

struct process {
  unsigned pid;
  unsigned long long used;
  unsigned instance, compute_instance;
};

// Counts the living processes with a context. The list gets as many as fit.
static unsigned living(struct process* list, unsigned room) {
  unsigned count = 0;
  DIR* directory = opendir(box_contexts());
  if (directory == NULL) return 0;
  for (struct dirent* entry; (entry = readdir(directory)) != NULL;) {
    const int pid = atoi(entry->d_name);
    if (pid <= 0 || kill(pid, 0) != 0) continue;
    if (list != NULL && count < room) list[count].pid = (unsigned)pid;
    ++count;
  }
  closedir(directory);
  return count;
}

// Each process with a context uses 500 MiB. If the fakes do not record contexts, the use is
// unknown.
int nvmlDeviceGetMemoryInfo(struct device* device, struct memory* memory) {
  ENTER(nvmlDeviceGetMemoryInfo);
  if (gpu_of(device) < 0 || memory == NULL) return kInvalidArgument;
  if (box_contexts() == NULL) return kUnknown;
  memory->total = 80ULL << 30;
  memory->used = (unsigned long long)living(NULL, 0) * (500U << 20);
  memory->free = memory->total - memory->used;
  return kSuccess;
}

int nvmlDeviceGetComputeMode(struct device* device, int* mode) {
  ENTER(nvmlDeviceGetComputeMode);
  if (gpu_of(device) < 0 || mode == NULL) return kInvalidArgument;
  *mode = 0;  // default
  return kSuccess;
}

int nvmlDeviceGetComputeRunningProcesses_v3(struct device* device, unsigned* count,
                                            struct process* list) {
  ENTER(nvmlDeviceGetComputeRunningProcesses_v3);
  if (gpu_of(device) < 0 || count == NULL) return kInvalidArgument;
  if (box_contexts() == NULL) return kUnknown;
  *count = living(list, *count);
  return kSuccess;
}

NVML(nvmlSystemGetDriverVersion, put_text(out, size, "", "599.01"), char* out, unsigned size)

const char* nvmlErrorString(int error) {
  fake_log("", "nvmlErrorString");
  switch (error) {
#define CG_ERROR(code, name, text) \
  case code:                       \
    return text;
#include "nvml_errors.inc"
#undef CG_ERROR
    default:
      return "Unknown Error";
  }
}

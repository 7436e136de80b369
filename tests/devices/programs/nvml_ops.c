// SPDX-License-Identifier: Apache-2.0
// Calls NVML by dlopen and dlsym, or (LINKED_NVML) as the linker bound it.
#include <dlfcn.h>

#include "ops.h"

struct uuid_value {
  unsigned version;
  unsigned type;
  char value[41];
};

#define CALLS(X)                                                       \
  X(nvmlInit, (void))                                                  \
  X(nvmlInit_v2, (void))                                               \
  X(nvmlInitWithFlags, (unsigned))                                     \
  X(nvmlShutdown, (void))                                              \
  X(nvmlDeviceGetCount, (unsigned*))                                   \
  X(nvmlDeviceGetCount_v2, (unsigned*))                                \
  X(nvmlDeviceGetHandleByIndex, (unsigned, void**))                    \
  X(nvmlDeviceGetHandleByIndex_v2, (unsigned, void**))                 \
  X(nvmlDeviceGetHandleByUUID, (const char*, void**))                  \
  X(nvmlDeviceGetHandleByUUIDV, (const struct uuid_value*, void**))    \
  X(nvmlDeviceGetHandleBySerial, (const char*, void**))                \
  X(nvmlDeviceGetHandleByPciBusId, (const char*, void**))              \
  X(nvmlDeviceGetHandleByPciBusId_v2, (const char*, void**))           \
  X(nvmlDeviceGetIndex, (void*, unsigned*))                            \
  X(nvmlDeviceGetUUID, (void*, char*, unsigned))                       \
  X(nvmlDeviceGetSerial, (void*, char*, unsigned))                     \
  X(nvmlDeviceGetName, (void*, char*, unsigned))                       \
  X(nvmlDeviceGetPciInfo_v3, (void*, void*))                           \
  X(nvmlDeviceGetComputeMode, (void*, int*))                           \
  X(nvmlDeviceGetTopologyNearestGpus, (void*, int, unsigned*, void**)) \
  X(nvmlSystemGetTopologyGpuSet, (unsigned, unsigned*, void**))

#ifdef LINKED_NVML
#define X(name, parameters) int name parameters;
CALLS(X)
#undef X
#pragma weak nvmlDeviceGetHandleByUUIDV  // an older NVML lacks it
FIND_LINKED(CALLS)
#else
FIND_LINKED(NO_CALLS)
#endif

static __thread int g_opens;

static void* find(const char* name) {
  static __thread void* handle;
  void* linked = g_opens ? NULL : find_linked(name);
  if (linked != NULL) return linked;
  if (handle == NULL) handle = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  return handle == NULL ? NULL : dlsym(handle, name);
}

#define CALL(name, arguments, ...) \
  (find(#name) == NULL ? -999 : ((int(*) arguments)find(#name))(__VA_ARGS__))

static void put_handle(struct answer* out, int answer, void* device) {
  char uuid[96] = "";
  if (answer == 0) answer = CALL(nvmlDeviceGetUUID, (void*, char*, unsigned), device, uuid, 96);
  if (answer != 0) {
    put(out, "!%d", answer);
  } else {
    // Prints GPU-... without the prefix, as the driver's lists have it.
    put(out, "%s", strncmp(uuid, "GPU-", 4) == 0 ? uuid + 4 : uuid);
  }
}

static void list(struct answer* out, const char* count_name, const char* get_name) {
  int (*count_all)(unsigned*) = (int (*)(unsigned*))find(count_name);
  int (*get)(unsigned, void**) = (int (*)(unsigned, void**))find(get_name);
  unsigned count = 77;
  const int answer = count_all == NULL ? -999 : count_all(&count);
  put(out, "%d:%u:", answer, count);
  for (unsigned i = 0; answer == 0 && i < count; ++i) {
    void* device = NULL;
    const int got = get(i, &device);
    put(out, i == 0 ? "" : ",");
    put_handle(out, got, device);
  }
}

static void list_now(struct answer* out) {
  list(out, "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2");
}

static void by_text(struct answer* out, const char* function, const char* value) {
  void* device = NULL;
  int (*get)(const char*, void**) = (int (*)(const char*, void**))find(function);
  const int answer = get == NULL ? -999 : get(value, &device);
  unsigned index = 77;
  if (answer == 0) CALL(nvmlDeviceGetIndex, (void*, unsigned*), device, &index);
  put(out, "%d:%u:", answer, index);
  put_handle(out, answer, device);
}

static void by_value(struct answer* out, const char* text, unsigned type) {
  struct uuid_value value = {.version = 1U << 24 | sizeof(struct uuid_value), .type = type};
  if (type == 1) {
    snprintf(value.value, sizeof value.value, "%s", text);
  } else {
    const char* at = strncmp(text, "GPU-", 4) == 0 ? text + 4 : text;
    for (int i = 0; i < 16 && *at != '\0'; ++i) {
      if (*at == '-') ++at;
      const char digits[3] = {at[0], at[1], '\0'};
      value.value[i] = (char)strtoul(digits, NULL, 16);
      at += 2;
    }
  }
  void* device = NULL;
  const int answer =
      CALL(nvmlDeviceGetHandleByUUIDV, (const struct uuid_value*, void**), &value, &device);
  put(out, "%d:", answer);
  put_handle(out, answer, device);
}

static void facts(struct answer* out, unsigned index) {
  struct {
    char text[16];
    unsigned numbers[5];
    char id[32];
    char room[256];
  } pci = {.id = ""};
  void* device = NULL;
  unsigned back = 77;
  char serial[64] = "";
  char name[96] = "";
  const int got = CALL(nvmlDeviceGetHandleByIndex_v2, (unsigned, void**), index, &device);
  if (got == 0) {
    CALL(nvmlDeviceGetIndex, (void*, unsigned*), device, &back);
    CALL(nvmlDeviceGetSerial, (void*, char*, unsigned), device, serial, sizeof serial);
    CALL(nvmlDeviceGetName, (void*, char*, unsigned), device, name, sizeof name);
    CALL(nvmlDeviceGetPciInfo_v3, (void*, void*), device, &pci);
  }
  put(out, "%d:%u:%s:%s:", got, back, serial, pci.id);
  put_word(out, name);
}

static void put_list(struct answer* out, int answer, unsigned count, void** found) {
  put(out, "%d:%u:", answer, count);
  for (unsigned i = 0; answer == 0 && i < count && i < kMostDevices; ++i) {
    put(out, i == 0 ? "" : ",");
    put_handle(out, 0, found[i]);
  }
}

// Asks twice for "INDEX,LEVEL", as NVML requires: first how many GPUs, then which.
static void nearest(struct answer* out, const char* value) {
  void* found[kMostDevices] = {NULL};
  void* device = NULL;
  unsigned count = 0;
  const char* comma = strchr(value, ',');
  const int level = comma == NULL ? 50 : atoi(comma + 1);
  CALL(nvmlDeviceGetHandleByIndex_v2, (unsigned, void**), (unsigned)atoi(value), &device);
  int answer = CALL(nvmlDeviceGetTopologyNearestGpus, (void*, int, unsigned*, void**), device,
                    level, &count, NULL);
  put(out, "%d:%u:", answer, count);
  answer = CALL(nvmlDeviceGetTopologyNearestGpus, (void*, int, unsigned*, void**), device, level,
                &count, found);
  put_list(out, answer, count, found);
}

static void gpu_set(struct answer* out, unsigned processor) {
  void* found[kMostDevices] = {NULL};
  unsigned count = 0;
  int answer =
      CALL(nvmlSystemGetTopologyGpuSet, (unsigned, unsigned*, void**), processor, &count, NULL);
  put(out, "%d:%u:", answer, count);
  answer =
      CALL(nvmlSystemGetTopologyGpuSet, (unsigned, unsigned*, void**), processor, &count, found);
  put_list(out, answer, count, found);
}

int nvml_step(const char* name, const char* value, struct answer* out) {
  if (strncmp(name, "nv.", 3) != 0) return 0;
  name += 3;
  unsigned count = 77;
  if (strcmp(name, "route") == 0) {
    g_opens = strcmp(value, "dlsym") == 0;
    put(out, "%d", g_opens || find_linked("nvmlInit") != NULL ? 0 : -1);
  } else if (strcmp(name, "init") == 0) {
    put(out, "%d", CALL(nvmlInit_v2, (void)));
  } else if (strcmp(name, "initold") == 0) {
    put(out, "%d", CALL(nvmlInit, (void)));
  } else if (strcmp(name, "initflags") == 0) {
    put(out, "%d", CALL(nvmlInitWithFlags, (unsigned), 0));
  } else if (strcmp(name, "shutdown") == 0) {
    put(out, "%d", CALL(nvmlShutdown, (void)));
  } else if (strcmp(name, "see") == 0) {
    put(out, "%d:", CALL(nvmlInit_v2, (void)));
    list_now(out);
  } else if (strcmp(name, "list") == 0) {
    list_now(out);
  } else if (strcmp(name, "listold") == 0) {
    list(out, "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex");
  } else if (strcmp(name, "count") == 0) {
    const int answer = CALL(nvmlDeviceGetCount_v2, (unsigned*), &count);
    put(out, "%d:%u", answer, count);
  } else if (strcmp(name, "get") == 0) {
    void* device = NULL;
    const int answer = CALL(nvmlDeviceGetHandleByIndex_v2, (unsigned, void**),
                            (unsigned)strtoul(value, NULL, 10), &device);
    put(out, "%d:%s", answer, device == NULL ? "null" : "set");
  } else if (strcmp(name, "uuid") == 0) {
    by_text(out, "nvmlDeviceGetHandleByUUID", value);
  } else if (strcmp(name, "uuidtext") == 0) {
    by_value(out, value, 1);
  } else if (strcmp(name, "uuidbytes") == 0) {
    by_value(out, value, 2);
  } else if (strcmp(name, "serial") == 0) {
    by_text(out, "nvmlDeviceGetHandleBySerial", value);
  } else if (strcmp(name, "bus") == 0) {
    by_text(out, "nvmlDeviceGetHandleByPciBusId_v2", value);
  } else if (strcmp(name, "busold") == 0) {
    by_text(out, "nvmlDeviceGetHandleByPciBusId", value);
  } else if (strcmp(name, "mode") == 0) {
    void* device = NULL;
    int mode = -7;
    CALL(nvmlDeviceGetHandleByIndex_v2, (unsigned, void**), (unsigned)atoi(value), &device);
    const int answer = CALL(nvmlDeviceGetComputeMode, (void*, int*), device, &mode);
    put(out, "%d:%d", answer, mode);
  } else if (strcmp(name, "facts") == 0) {
    facts(out, (unsigned)atoi(value));
  } else if (strcmp(name, "nearest") == 0) {
    nearest(out, value);
  } else if (strcmp(name, "set") == 0) {
    gpu_set(out, (unsigned)atoi(value));
  } else {
    return 0;
  }
  return 1;
}

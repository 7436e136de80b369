// SPDX-License-Identifier: Apache-2.0
// A program of NVML. With -DLINKED it is linked to libnvidia-ml.so.1; otherwise, it opens it.
//   do=list      count, each device's UUID, PCI id, name, index back, memory (the default)
//                uuids=A,B: also the answers of nvmlDeviceGetHandleByUUID
//   do=watch     each GPU's memory in use, lowest and highest, and the processes that were seen on
//                it, until stdin is closed
#include <poll.h>

#include "gpu.h"

struct memory {
  unsigned long long total, free, used;
};

struct pci {
  char old_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char id[32];
};

struct process {
  unsigned pid;
  unsigned long long used;
  unsigned instance, compute_instance;
};

// clang-format off
#define NVML_NAMES(X)                                                   \
  X(nvmlInit_v2, (void))                                                \
  X(nvmlDeviceGetCount_v2, (unsigned*))                                 \
  X(nvmlDeviceGetHandleByIndex_v2, (unsigned, void**))                  \
  X(nvmlDeviceGetHandleByUUID, (const char*, void**))                   \
  X(nvmlDeviceGetUUID, (void*, char*, unsigned))                        \
  X(nvmlDeviceGetName, (void*, char*, unsigned))                        \
  X(nvmlDeviceGetIndex, (void*, unsigned*))                             \
  NEWER_NAMES(X)
#define NEWER_NAMES(X)                                                  \
  X(nvmlDeviceGetPciInfo_v3, (void*, struct pci*))                      \
  X(nvmlDeviceGetMemoryInfo, (void*, struct memory*))                   \
  X(nvmlSystemGetDriverVersion, (char*, unsigned))                      \
  X(nvmlDeviceGetComputeRunningProcesses_v3, (void*, unsigned*, struct process*))
// clang-format on

#define FIELD(name, arguments) int(*name) arguments;
static struct { NVML_NAMES(FIELD) } g_nvml;

#ifdef LINKED
#define DECLARE(name, arguments) extern int name arguments;
NVML_NAMES(DECLARE)
// The library that this program runs with may lack these functions.
#define WEAKEN(name, arguments) extern int name arguments __attribute__((weak));
NEWER_NAMES(WEAKEN)
#endif

static int load(void) {
#ifdef LINKED
#define TAKE(name, arguments) g_nvml.name = name;
  NVML_NAMES(TAKE)
#else
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (library == NULL) return 0;
  void* address;
#define FIND(name, arguments)      \
  address = dlsym(library, #name); \
  memcpy(&g_nvml.name, &address, sizeof address);
  NVML_NAMES(FIND)
#endif
  return g_nvml.nvmlInit_v2 != NULL && g_nvml.nvmlDeviceGetCount_v2 != NULL &&
         g_nvml.nvmlDeviceGetHandleByIndex_v2 != NULL;
}

static void print_device(unsigned i) {
  void* device = NULL;
  const int answer = g_nvml.nvmlDeviceGetHandleByIndex_v2(i, &device);
  printf("handle%u=%d ", i, answer);
  if (answer != 0) return;
  char text[128] = "";
  if (g_nvml.nvmlDeviceGetUUID != NULL &&
      g_nvml.nvmlDeviceGetUUID(device, text, sizeof text) == 0) {
    print_word("uuid", (int)i, text);
  }
  if (g_nvml.nvmlDeviceGetName != NULL &&
      g_nvml.nvmlDeviceGetName(device, text, sizeof text) == 0) {
    print_word("name", (int)i, text);
  }
  struct pci pci;
  if (g_nvml.nvmlDeviceGetPciInfo_v3 != NULL && g_nvml.nvmlDeviceGetPciInfo_v3(device, &pci) == 0) {
    print_word("pci", (int)i, pci.id);
  }
  unsigned index = 77;
  if (g_nvml.nvmlDeviceGetIndex != NULL && g_nvml.nvmlDeviceGetIndex(device, &index) == 0) {
    printf("index%u=%u ", i, index);
  }
  struct memory memory;
  if (g_nvml.nvmlDeviceGetMemoryInfo != NULL &&
      g_nvml.nvmlDeviceGetMemoryInfo(device, &memory) == 0) {
    printf("used%u=%llu total%u=%llu ", i, memory.used, i, memory.total);
  }
}

static void ask_uuids(char* uuids) {
  char* rest = uuids;
  int i = 0;
  for (char* uuid; (uuid = strsep(&rest, ",")) != NULL; ++i) {
    void* device = NULL;
    printf("byUuid%d=%d ", i, g_nvml.nvmlDeviceGetHandleByUUID(uuid, &device));
  }
}

enum { kGpus = 64, kSeen = 256 };

static void watch(unsigned count) {
  static unsigned long long low[kGpus];
  static unsigned long long high[kGpus];
  static unsigned seen[kSeen];
  static struct process list[kSeen];
  int seen_count = 0;
  unsigned long long rounds = 0;
  if (count > kGpus) count = kGpus;
  printf("watching=%u\n", count);
  fflush(stdout);
  struct pollfd end = {.fd = 0, .events = POLLIN};
  do {
    for (unsigned i = 0; i < count; ++i) {
      void* device = NULL;
      struct memory memory;
      if (g_nvml.nvmlDeviceGetHandleByIndex_v2(i, &device) != 0) continue;
      if (g_nvml.nvmlDeviceGetMemoryInfo != NULL &&
          g_nvml.nvmlDeviceGetMemoryInfo(device, &memory) == 0) {
        if (rounds == 0 || memory.used < low[i]) low[i] = memory.used;
        if (memory.used > high[i]) high[i] = memory.used;
      }
      unsigned got = kSeen;
      if (g_nvml.nvmlDeviceGetComputeRunningProcesses_v3 == NULL ||
          g_nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, &got, list) != 0) {
        continue;
      }
      for (unsigned p = 0; p < got; ++p) {
        int known = 0;
        for (int s = 0; s < seen_count; ++s) known |= seen[s] == list[p].pid;
        if (!known && seen_count < kSeen) seen[seen_count++] = list[p].pid;
      }
    }
    ++rounds;
  } while (poll(&end, 1, 10) == 0);
  for (unsigned i = 0; i < count; ++i) printf("low%u=%llu high%u=%llu ", i, low[i], i, high[i]);
  printf("rounds=%llu pids=", rounds);
  for (int s = 0; s < seen_count; ++s) printf("%s%u", s == 0 ? "" : ",", seen[s]);
  printf("\n");
}

int main(int argc, char** argv) {
  g_argc = argc;
  g_argv = argv;
  if (!load()) {
    printf("nvmlInit=null\n");
    return 0;
  }
  const int answer = g_nvml.nvmlInit_v2();
  unsigned count = 0;
  printf("nvmlInit=%d ", answer);
  if (answer != 0) {
    printf("\n");
    return 0;
  }
  const int count_answer = g_nvml.nvmlDeviceGetCount_v2(&count);
  if (is("do", "watch")) {
    watch(count);
    return 0;
  }
  printf("countRc=%d count=%u ", count_answer, count);
  char version[96] = "";
  if (g_nvml.nvmlSystemGetDriverVersion != NULL &&
      g_nvml.nvmlSystemGetDriverVersion(version, sizeof version) == 0) {
    printf("driverVersion=%s ", version);
  }
  for (unsigned i = 0; i < count; ++i) print_device(i);
  void* device = NULL;
  printf("beyond=%d ", g_nvml.nvmlDeviceGetHandleByIndex_v2(count, &device));
  char* uuids = strdup(option("uuids", ""));
  if (*uuids != '\0') ask_uuids(uuids);
  free(uuids);
  printf("\n");
  return 0;
}

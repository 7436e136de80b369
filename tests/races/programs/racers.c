// SPDX-License-Identifier: Apache-2.0
// Many threads make the first call of a process and print the answer that each of them got.
//   racers THREADS ENTRY_POINTS    thread i uses entry point i of ENTRY_POINTS, repeated:
//     o  the driver by dlopen and dlsym      p  the same through cuGetProcAddress_v2
//     n  NVML by dlopen and dlsym            r  the runtime that this program is linked to
//     l  the driver that it is linked to     m  NVML that it is linked to (both with LINKED)
// Prints one line "THREADS ANSWER" for each different answer. An answer is "COUNT:UUID,UUID..." or
// "!CODE", the same for every entry point that shows the same GPUs.
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kMostThreads = 64, kMostAnswer = 512 };

extern char** environ;

// Replaces libc's getenv. The driver asks for CG_GONE inside cuInit, so this makes cuInit take as
// many microseconds as CG_SLOW says. NVIDIA's takes longer.
__attribute__((visibility("default"))) char* getenv(const char* name) {
  const size_t size = strlen(name);
  if (strcmp(name, "CG_GONE") == 0) {
    const char* slow = getenv("CG_SLOW");
    const struct timespec pause = {0, slow == NULL ? 0 : strtol(slow, NULL, 10) * 1000};
    nanosleep(&pause, NULL);
  }
  for (char** entry = environ; *entry != NULL; ++entry) {
    if (strncmp(*entry, name, size) == 0 && (*entry)[size] == '=') return *entry + size + 1;
  }
  return NULL;
}

struct thread {
  pthread_t id;
  char entry_point;
  char answer[kMostAnswer];
};
static struct thread g_threads[kMostThreads];
static pthread_barrier_t g_barrier;

static void put(struct thread* thread, const char* text) {
  const size_t used = strlen(thread->answer);
  snprintf(thread->answer + used, kMostAnswer - used, "%s", text);
}

static void put_number(struct thread* thread, const char* before, int number) {
  char text[32];
  snprintf(text, sizeof text, "%s%d", before, number);
  put(thread, text);
}

static void put_uuid(struct thread* thread, int index, const unsigned char* bytes) {
  char text[40] = "";
  size_t used = 0;
  for (int i = 0; i < 16; ++i) {
    const char* dash = i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "";
    used += (size_t)snprintf(text + used, sizeof text - used, "%s%02x", dash, bytes[i]);
  }
  put(thread, index == 0 ? ":" : ",");
  put(thread, text);
}

#define DRIVER(X)             \
  X(cuInit, (unsigned))       \
  X(cuDeviceGetCount, (int*)) \
  X(cuDeviceGet, (int*, int)) \
  X(cuDeviceGetUuid_v2, (void*, int))

#define NVML(X)                                        \
  X(nvmlInit_v2, (void))                               \
  X(nvmlDeviceGetCount_v2, (unsigned*))                \
  X(nvmlDeviceGetHandleByIndex_v2, (unsigned, void**)) \
  X(nvmlDeviceGetUUID, (void*, char*, unsigned))

#define X(name, parameters) int(*name) parameters;
struct driver {
  DRIVER(X)
};
struct nvml {
  NVML(X)
};
#undef X

static void ask_driver(struct thread* thread, const struct driver* driver) {
  int count = 0;
  int answer = driver->cuInit(0);
  if (answer == 0) answer = driver->cuDeviceGetCount(&count);
  if (answer != 0) return put_number(thread, "!", answer);
  put_number(thread, "", count);
  for (int i = 0; i < count; ++i) {
    int device = -1;
    unsigned char uuid[16] = {0};
    answer = driver->cuDeviceGet(&device, i);
    if (answer == 0) answer = driver->cuDeviceGetUuid_v2(uuid, device);
    if (answer != 0) return put_number(thread, "!", answer);
    put_uuid(thread, i, uuid);
  }
}

static void ask_nvml(struct thread* thread, const struct nvml* nvml) {
  unsigned count = 0;
  int answer = nvml->nvmlInit_v2();
  if (answer == 0) answer = nvml->nvmlDeviceGetCount_v2(&count);
  if (answer != 0) return put_number(thread, "!", answer);
  put_number(thread, "", (int)count);
  for (unsigned i = 0; i < count; ++i) {
    void* device = NULL;
    char uuid[96] = "";
    answer = nvml->nvmlDeviceGetHandleByIndex_v2(i, &device);
    if (answer == 0) answer = nvml->nvmlDeviceGetUUID(device, uuid, sizeof uuid);
    if (answer != 0) return put_number(thread, "!", answer);
    put(thread, i == 0 ? ":" : ",");
    put(thread, uuid + strlen("GPU-"));
  }
}

static void* open_library(const char* name) {
  void* library = dlopen(name, RTLD_NOW);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    exit(3);
  }
  return library;
}

static void open_driver(struct thread* thread) {
  void* library = open_library("libcuda.so.1");
  struct driver driver;
#define X(name, parameters) driver.name = (int(*) parameters)dlsym(library, #name);
  DRIVER(X)
#undef X
  ask_driver(thread, &driver);
}

static void open_nvml(struct thread* thread) {
  void* library = open_library("libnvidia-ml.so.1");
  struct nvml nvml;
#define X(name, parameters) nvml.name = (int(*) parameters)dlsym(library, #name);
  NVML(X)
#undef X
  ask_nvml(thread, &nvml);
}

static void ask_for_driver(struct thread* thread) {
  typedef int (*get_proc)(const char*, void**, int, uint64_t, int*);
  const get_proc get = (get_proc)dlsym(open_library("libcuda.so.1"), "cuGetProcAddress_v2");
  struct driver driver;
#define X(name, parameters)                                        \
  {                                                                \
    char base[32] = #name;                                         \
    if (strstr(base, "_v2") != NULL) *strstr(base, "_v2") = '\0';  \
    void* found = NULL;                                            \
    if (get(base, &found, 13000, 0, NULL) != 0 || found == NULL) { \
      return put_number(thread, "!", -1);                          \
    }                                                              \
    driver.name = (int(*) parameters)found;                        \
  }
  DRIVER(X)
#undef X
  ask_driver(thread, &driver);
}

int cudaGetDeviceCount(int* count);
int cudaGetDeviceProperties(void* out, int device);

static void call_runtime(struct thread* thread) {
  struct {
    char name[256];
    unsigned char uuid[16];
    char room[2048];
  } found = {.name = ""};
  int count = 0;
  int answer = cudaGetDeviceCount(&count);
  if (answer != 0) return put_number(thread, "!", answer);
  put_number(thread, "", count);
  for (int i = 0; i < count; ++i) {
    answer = cudaGetDeviceProperties(&found, i);
    if (answer != 0) return put_number(thread, "!", answer);
    put_uuid(thread, i, found.uuid);
  }
}

#ifdef LINKED
#define X(name, parameters) int name parameters;
DRIVER(X)
NVML(X)
#undef X

static void call_driver(struct thread* thread) {
  const struct driver driver = {cuInit, cuDeviceGetCount, cuDeviceGet, cuDeviceGetUuid_v2};
  ask_driver(thread, &driver);
}

static void call_nvml(struct thread* thread) {
  const struct nvml nvml = {nvmlInit_v2, nvmlDeviceGetCount_v2, nvmlDeviceGetHandleByIndex_v2,
                            nvmlDeviceGetUUID};
  ask_nvml(thread, &nvml);
}
#endif

static void* run(void* argument) {
  struct thread* thread = argument;
  pthread_barrier_wait(&g_barrier);
  switch (thread->entry_point) {
    case 'o':
      open_driver(thread);
      break;
    case 'p':
      ask_for_driver(thread);
      break;
    case 'n':
      open_nvml(thread);
      break;
    case 'r':
      call_runtime(thread);
      break;
#ifdef LINKED
    case 'l':
      call_driver(thread);
      break;
    case 'm':
      call_nvml(thread);
      break;
#endif
    default:
      exit(2);
  }
  // No thread ends before all have asked, because ThreadSanitizer does not detect a reused stack.
  pthread_barrier_wait(&g_barrier);
  return NULL;
}

int main(int argc, char** argv) {
  const int threads = argc == 3 ? (int)strtol(argv[1], NULL, 10) : 0;
  if (threads < 1 || threads > kMostThreads || *argv[2] == '\0') return 2;
  pthread_barrier_init(&g_barrier, NULL, (unsigned)threads);
  for (int i = 0; i < threads; ++i) {
    g_threads[i].entry_point = argv[2][(size_t)i % strlen(argv[2])];
    if (pthread_create(&g_threads[i].id, NULL, run, &g_threads[i]) != 0) return 4;
  }
  for (int i = 0; i < threads; ++i) pthread_join(g_threads[i].id, NULL);
  for (int i = 0; i < threads; ++i) {
    int first = 1;
    int same = 0;
    for (int k = 0; k < threads; ++k) {
      if (strcmp(g_threads[k].answer, g_threads[i].answer) != 0) continue;
      if (k < i) first = 0;
      ++same;
    }
    if (first) printf("%d %s\n", same, g_threads[i].answer);
  }
  return 0;
}

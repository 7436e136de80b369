// SPDX-License-Identifier: Apache-2.0
// A program of the driver API. With -DLINKED it is linked to libcuda.so.1; otherwise, it opens it.
//   do=where     prints the driver's file and initialises nothing
//   do=list      cuInit, the count, each device's UUID, name, PCI id (the default)
//   do=init      measures loading and the first cuInit
//   do=get       cuDeviceGet(index=)
//   do=context   the primary context of device 0; hold=1 keeps it until stdin is closed
//   do=kernel    the same, then loads a kernel from PTX, runs and checks it
//   do=calls     nanoseconds per cuDeviceGet(0)
//   do=names     prints the file of each function
//   do=fork      cuInit, then cuInit again in a forked child
//   do=late      NVML's count, then sets CUDA_VISIBLE_DEVICES to write=, then cuInit
//   by=proc      gets functions by cuGetProcAddress_v2
#include <link.h>
#include <sys/wait.h>

#include "gpu.h"

#define DRIVER_NAMES(X)                                                                           \
  X(cuInit, (unsigned))                                                                           \
  X(cuDriverGetVersion, (int*))                                                                   \
  X(cuDeviceGetCount, (int*))                                                                     \
  X(cuDeviceGet, (int*, int))                                                                     \
  X(cuDeviceGetName, (char*, int, int))                                                           \
  X(cuDeviceGetUuid, (void*, int))                                                                \
  X(cuDeviceGetPCIBusId, (char*, int, int))                                                       \
  X(cuDevicePrimaryCtxRetain, (void**, int))                                                      \
  X(cuCtxSetCurrent, (void*))                                                                     \
  X(cuCtxSynchronize, (void))                                                                     \
  X(cuModuleLoadData, (void**, const void*))                                                      \
  X(cuModuleGetFunction, (void**, void*, const char*))                                            \
  X(cuMemAlloc_v2, (uint64_t*, size_t))                                                           \
  X(cuMemcpyDtoH_v2, (void*, uint64_t, size_t))                                                   \
  X(cuLaunchKernel, (void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
                     void*, void**, void**))

#define FIELD(name, arguments) int(*name) arguments;
static struct { DRIVER_NAMES(FIELD) } g_driver;

#ifdef LINKED
#define DECLARE(name, arguments) extern int name arguments;
DRIVER_NAMES(DECLARE)
#endif
#define TEXT(name, arguments) #name,
static const char* const kNames[] = {DRIVER_NAMES(TEXT)};
enum { kNameCount = sizeof kNames / sizeof *kNames };

typedef int (*proc_address)(const char*, void**, int, uint64_t, int*);

static void* find(void* library, proc_address by_proc, const char* name) {
  if (by_proc == NULL) return dlsym(library, name);
  // cuGetProcAddress takes the name without its version.
  char plain[64];
  snprintf(plain, sizeof plain, "%s", name);
  char* version = strstr(plain, "_v2");
  if (version != NULL) *version = '\0';
  void* function = NULL;
  return by_proc(plain, &function, 12000, 0, NULL) == 0 ? function : NULL;
}

static void* g_library;

static int load(void) {
#ifdef LINKED
#define TAKE(name, arguments) g_driver.name = name;
  DRIVER_NAMES(TAKE)
  g_library = RTLD_DEFAULT;
#else
  g_library = dlopen(option("lib", "libcuda.so.1"), RTLD_NOW);
  if (g_library == NULL) {
    printf("open=null\n");
    return 0;
  }
  proc_address by_proc = NULL;
  if (is("by", "proc")) by_proc = (proc_address)dlsym(g_library, "cuGetProcAddress_v2");
  void* address;
#define FIND(name, arguments)                \
  address = find(g_library, by_proc, #name); \
  memcpy(&g_driver.name, &address, sizeof address);
  DRIVER_NAMES(FIND)
#endif
  return 1;
}

static int device_at(int index) {
  int device = -7;
  const int answer = g_driver.cuDeviceGet == NULL ? -1 : g_driver.cuDeviceGet(&device, index);
  return answer == 0 ? device : -1;
}

static int init(void) {
  if (g_driver.cuInit == NULL) {
    printf("cuInit=null ");
    return -1;
  }
  const uint64_t start = now_ns();
  const int answer = g_driver.cuInit(0);
  printf("cuInit=%d initNs=%llu ", answer, (unsigned long long)(now_ns() - start));
  return answer;
}

static int count_devices(void) {
  int count = -7;
  const int answer = g_driver.cuDeviceGetCount == NULL ? -1 : g_driver.cuDeviceGetCount(&count);
  printf("countRc=%d count=%d ", answer, count);
  return answer == 0 ? count : 0;
}

static void list(void) {
  if (init() != 0) return;
  const int count = count_devices();
  for (int i = 0; i < count; ++i) {
    unsigned char uuid[16] = {0};
    char text[128] = "";
    const int device = device_at(i);
    if (g_driver.cuDeviceGetUuid != NULL && g_driver.cuDeviceGetUuid(uuid, device) == 0) {
      print_uuid("uuid", i, uuid);
    }
    if (g_driver.cuDeviceGetName != NULL &&
        g_driver.cuDeviceGetName(text, sizeof text, device) == 0) {
      print_word("name", i, text);
    }
    if (g_driver.cuDeviceGetPCIBusId != NULL &&
        g_driver.cuDeviceGetPCIBusId(text, sizeof text, device) == 0) {
      print_word("pci", i, text);
    }
  }
}

static void* make_context(void) {
  void* context = NULL;
  if (init() != 0) return NULL;
  if (g_driver.cuDevicePrimaryCtxRetain == NULL || g_driver.cuCtxSetCurrent == NULL) {
    printf("context=null ");
    return NULL;
  }
  const uint64_t start = now_ns();
  const int answer = g_driver.cuDevicePrimaryCtxRetain(&context, device_at(0));
  const int current = answer == 0 ? g_driver.cuCtxSetCurrent(context) : -1;
  printf("context=%d current=%d contextNs=%llu ", answer, current,
         (unsigned long long)(now_ns() - start));
  return answer == 0 ? context : NULL;
}

// The kernel computes out[i] = 3 * i + 1.
static const char kPtx[] =
    ".version 6.4\n.target %s\n.address_size 64\n"
    ".visible .entry fill(.param .u64 out) {\n"
    " .reg .u32 %%i, %%v; .reg .u64 %%p, %%o;\n"
    " mov.u32 %%i, %%tid.x; mad.lo.u32 %%v, %%i, 3, 1;\n"
    " ld.param.u64 %%p, [out]; cvta.to.global.u64 %%p, %%p;\n"
    " mul.wide.u32 %%o, %%i, 4; add.u64 %%p, %%p, %%o;\n"
    " st.global.u32 [%%p], %%v; ret; }\n";

static void run_kernel(void) {
  if (make_context() == NULL) return;
  void* module = NULL;
  int answer = -1;
  const char* const targets[] = {"sm_75", "sm_50"};
  for (int i = 0; i < 2 && answer != 0; ++i) {
    char ptx[sizeof kPtx + 16];
    snprintf(ptx, sizeof ptx, kPtx, targets[i]);
    answer = g_driver.cuModuleLoadData == NULL ? -1 : g_driver.cuModuleLoadData(&module, ptx);
  }
  printf("module=%d ", answer);
  void* function = NULL;
  uint64_t memory = 0;
  uint32_t out[64] = {0};
  if (answer != 0 || g_driver.cuModuleGetFunction(&function, module, "fill") != 0 ||
      g_driver.cuMemAlloc_v2(&memory, sizeof out) != 0) {
    printf("kernel=none ");
    return;
  }
  void* arguments[] = {&memory};
  answer = g_driver.cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, NULL, arguments, NULL);
  if (answer == 0) answer = g_driver.cuCtxSynchronize();
  if (answer == 0) answer = g_driver.cuMemcpyDtoH_v2(out, memory, sizeof out);
  int right = 0;
  for (uint32_t i = 0; i < 64; ++i) right += out[i] == 3 * i + 1;
  printf("launch=%d kernel=%s ", answer, right == 64 ? "right" : "wrong");
}

static void print_names(void) {
  for (int i = 0; i < kNameCount; ++i) {
    printf("dlsym.%s=%s ", kNames[i], file_of(dlsym(g_library, kNames[i])));
  }
  proc_address proc = (proc_address)dlsym(g_library, "cuGetProcAddress_v2");
  for (int i = 0; proc != NULL && i < kNameCount; ++i) {
    printf("proc.%s=%s ", kNames[i], file_of(find(NULL, proc, kNames[i])));
  }
  printf("unknown=%s ", file_of(dlsym(g_library, "cuBrandNewThing")));
}

static void fork_after_init(void) {
  init();
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    const int answer = g_driver.cuInit(0);
    int count = -7;
    const int count_answer = g_driver.cuDeviceGetCount(&count);
    printf("child.cuInit=%d child.countRc=%d ", answer, count_answer);
    fflush(stdout);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  printf("child.status=%d ", status);
}

static void where(void) {
#ifndef LINKED
  struct link_map* map = NULL;
  if (dlinfo(g_library, RTLD_DI_LINKMAP, &map) == 0) printf("driver=%s ", map->l_name);
#endif
  int version = -7;
  if (g_driver.cuDriverGetVersion != NULL) {
    const int answer = g_driver.cuDriverGetVersion(&version);
    printf("versionRc=%d version=%d ", answer, version);
  }
}

int main(int argc, char** argv) {
  g_argc = argc;
  g_argv = argv;
  const char* what = option("do", "list");
  if (strcmp(what, "late") == 0) {
    print_nvml("nvml.");
    setenv("CUDA_VISIBLE_DEVICES", option("write", "-1"), 1);
  }
  const uint64_t start = now_ns();
  if (!load()) return 0;
  if (strcmp(what, "init") == 0) {
    printf("loadNs=%llu ", (unsigned long long)(now_ns() - start));
    init();
  } else if (strcmp(what, "where") == 0) {
    where();
  } else if (strcmp(what, "get") == 0) {
    if (init() == 0) {
      int device = -7;
      const int answer = g_driver.cuDeviceGet(&device, number("index", 99));
      printf("cuDeviceGet=%d device=%d ", answer, device);
    }
  } else if (strcmp(what, "context") == 0) {
    make_context();
  } else if (strcmp(what, "kernel") == 0) {
    run_kernel();
  } else if (strcmp(what, "calls") == 0) {
    int device = -7;
    if (init() == 0) TIME_CALLS(g_driver.cuDeviceGet(&device, 0));
  } else if (strcmp(what, "names") == 0) {
    print_names();
  } else if (strcmp(what, "fork") == 0) {
    fork_after_init();
  } else {
    list();
  }
  if (strcmp(what, "late") == 0) printf("env=%s ", getenv("CUDA_VISIBLE_DEVICES"));
  printf("\n");
  if (is("hold", "1")) wait_for_end_of_input();
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// Calls the driver by dlopen and dlsym, by cuGetProcAddress, or (LINKED_CUDA) as the linker bound
// it.
#include <dlfcn.h>

#include "ops.h"

#define CALLS(X)                                                                                \
  X(cuInit, (unsigned))                                                                         \
  X(cuDriverGetVersion, (int*))                                                                 \
  X(cuDeviceGetCount, (int*))                                                                   \
  X(cuDeviceGet, (int*, int))                                                                   \
  X(cuDeviceGetUuid_v2, (void*, int))                                                           \
  X(cuDeviceGetName, (char*, int, int))                                                         \
  X(cuDeviceGetPCIBusId, (char*, int, int))                                                     \
  X(cuDeviceGetByPCIBusId, (int*, const char*))                                                 \
  X(cuDeviceGetAttribute, (int*, int, int))                                                     \
  X(cuDeviceGetUuid, (void*, int))                                                              \
  X(cuDeviceTotalMem_v2, (size_t*, int))                                                        \
  X(cuCtxCreate_v2, (void**, unsigned, int))                                                    \
  X(cuCtxCreate_v3, (void**, void*, int, unsigned, int))                                        \
  X(cuCtxCreate_v4, (void**, void*, unsigned, int))                                             \
  X(cuCtxGetDevice, (int*))                                                                     \
  X(cuDevicePrimaryCtxRetain, (void**, int))                                                    \
  X(cuModuleLoadData, (void**, const void*))                                                    \
  X(cuLibraryLoadData, (void**, const void*, void*, void**, unsigned, void*, void**, unsigned)) \
  X(cuMemAlloc_v2, (uint64_t*, size_t))                                                         \
  X(cuGetErrorName, (int, const char**))                                                        \
  X(cuGetProcAddress, (const char*, void**, int, uint64_t))                                     \
  X(cuGetProcAddress_v2, (const char*, void**, int, uint64_t, int*))

#ifdef LINKED_CUDA
#define X(name, parameters) int name parameters;
CALLS(X)
#undef X
// Older drivers lack these names, and the program must start with such a driver, too.
#pragma weak cuCtxCreate_v3
#pragma weak cuCtxCreate_v4
#pragma weak cuLibraryLoadData
FIND_LINKED(CALLS)
#else
FIND_LINKED(NO_CALLS)
#endif

enum route { kBySymbol, kByProc, kByLinker };

#ifdef LINKED_CUDA
static __thread enum route g_route = kByLinker;
#else
static __thread enum route g_route = kBySymbol;
#endif
static const char* g_library = "libcuda.so.1";
static __thread void* g_handle;

static void* handle(void) {
  if (g_handle == NULL) g_handle = dlopen(g_library, RTLD_NOW);
  return g_handle;
}

static void* by_symbol(const char* name) { return handle() == NULL ? NULL : dlsym(handle(), name); }

typedef int (*proc_function)(const char*, void**, int, uint64_t, int*);

// Returns the name that a runtime of version 13.2 would request.
static void* by_proc(const char* name) {
  const proc_function find = (proc_function)by_symbol("cuGetProcAddress_v2");
  char base[64];
  snprintf(base, sizeof base, "%s", name);
  char* suffix = strstr(base, "_v");
  if (suffix != NULL) *suffix = '\0';
  // These forms are not the newest.
  int version = 13020;
  if (strcmp(name, "cuDeviceGetUuid") == 0) version = 9020;
  if (strcmp(name, "cuCtxCreate_v2") == 0) version = 4000;
  if (strcmp(name, "cuCtxCreate_v3") == 0) version = 11040;
  if (strcmp(name, "cuCtxGetDevice") == 0) version = 2000;
  if (strcmp(name, "cuGetProcAddress") == 0) version = 11030;
  void* found = NULL;
  if (find == NULL || find(base, &found, version, 0, NULL) != 0) return NULL;
  return found;
}

static void* find(const char* name) {
  if (g_route == kByLinker) return find_linked(name);
  return g_route == kByProc ? by_proc(name) : by_symbol(name);
}

// Returns -999 if there is no such function or no driver.
#define CALL(name, arguments, ...) \
  (find(#name) == NULL ? -999 : ((int(*) arguments)find(#name))(__VA_ARGS__))

static void put_device(struct answer* out, int device) {
  unsigned char bytes[16] = {0};
  const int answer = CALL(cuDeviceGetUuid_v2, (void*, int), bytes, device);
  if (answer != 0) {
    put(out, "!%d", answer);
  } else {
    put_uuid(out, bytes);
  }
}

static void list(struct answer* out) {
  int count = -7;
  const int answer = CALL(cuDeviceGetCount, (int*), &count);
  put(out, "%d:%d:", answer, count);
  for (int i = 0; answer == 0 && i < count; ++i) {
    int device = -7;
    const int got = CALL(cuDeviceGet, (int*, int), &device, i);
    put(out, i == 0 ? "" : ",");
    if (got != 0) {
      put(out, "!%d", got);
    } else {
      put_device(out, device);
    }
  }
}

// Asks for the facts of a device that the program has not obtained. No error stops it.
static void insist(struct answer* out, int device) {
  char text[256] = "";
  int number = -7;
  size_t bytes = 0;
  put(out, "%d", CALL(cuDeviceGetCount, (int*), &number));
  put(out, ":%d", CALL(cuDeviceGet, (int*, int), &number, device));
  put(out, ":%d", CALL(cuDeviceGetName, (char*, int, int), text, sizeof text, device));
  put(out, ":%d", CALL(cuDeviceGetUuid, (void*, int), text, device));
  put(out, ":%d", CALL(cuDeviceGetUuid_v2, (void*, int), text, device));
  put(out, ":%d", CALL(cuDeviceTotalMem_v2, (size_t*, int), &bytes, device));
  put(out, ":%d", CALL(cuDeviceGetAttribute, (int*, int, int), &number, 33, device));
  put(out, ":%d", CALL(cuDeviceGetPCIBusId, (char*, int, int), text, 32, device));
  put(out, ":%d", CALL(cuDeviceGetByPCIBusId, (int*, const char*), &number, "0000:07:00.0"));
}

// Calls any function, with arguments of zero.
static void call_with_zeros(struct answer* out, const char* name) {
  int (*function)(void*, void*, void*, void*, void*, void*, void*, void*) = find(name);
  put(out, "%d",
      function == NULL ? -999 : function(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
}

static void make_context(struct answer* out, const char* value) {
  // The value names the call and the device: "PRIMARY,0", "v4,1".
  const char* comma = strchr(value, ',');
  const int device = comma == NULL ? 0 : atoi(comma + 1);
  void* context = NULL;
  int answer = -999;
  if (strncmp(value, "primary", 7) == 0) {
    answer = CALL(cuDevicePrimaryCtxRetain, (void**, int), &context, device);
  } else if (strncmp(value, "v4", 2) == 0) {
    answer = CALL(cuCtxCreate_v4, (void**, void*, unsigned, int), &context, NULL, 0, device);
  } else if (strncmp(value, "v3", 2) == 0) {
    answer =
        CALL(cuCtxCreate_v3, (void**, void*, int, unsigned, int), &context, NULL, 0, 0, device);
  } else {
    answer = CALL(cuCtxCreate_v2, (void**, unsigned, int), &context, 0, device);
  }
  int at = -7;
  CALL(cuCtxGetDevice, (int*), &at);
  put(out, "%d:%s:%d", answer, context == NULL ? "null" : "set", at);
}

static void load_code(struct answer* out, const char* value) {
  void* code = NULL;
  unsigned options = 3;
  const int answer =
      strcmp(value, "library") == 0
          ? CALL(cuLibraryLoadData,
                 (void**, const void*, void*, void**, unsigned, void*, void**, unsigned), &code,
                 "code", NULL, NULL, 0, &options, NULL, 3)
          : CALL(cuModuleLoadData, (void**, const void*), &code, "code");
  put(out, "%d:%s", answer, code == NULL ? "null" : "set");
}

// Prints where a function lives: the last part of the file's path, and the offset in the file.
static void put_place(struct answer* out, void* function) {
  Dl_info info;
  if (function == NULL) {
    put(out, "null");
  } else if (dladdr(function, &info) == 0) {
    put(out, "?");
  } else {
    const char* slash = strrchr(info.dli_fname, '/');
    put(out, "%s+%zx", slash == NULL ? info.dli_fname : slash + 1,
        (size_t)function - (size_t)info.dli_fbase);
  }
}

// Prints what cuGetProcAddress_v2 and its old form return for "NAME,VERSION,FLAGS".
static void ask(struct answer* out, const char* value) {
  char name[128];
  int version = 13020;
  unsigned flags = 0;
  if (sscanf(value, "%127[^,],%d,%u", name, &version, &flags) < 1) return;
  void* found = (void*)0x55;
  int status = -7;
  const int answer = CALL(cuGetProcAddress_v2, (const char*, void**, int, uint64_t, int*), name,
                          &found, version, flags, &status);
  put(out, "%d:%d:", answer, status);
  put_place(out, found == (void*)0x55 ? NULL : found);
  found = NULL;
  const int old =
      CALL(cuGetProcAddress, (const char*, void**, int, uint64_t), name, &found, version, flags);
  put(out, ":%d:", old);
  put_place(out, found);
}

static int choose_route(const char* value) {
  if (strcmp(value, "dlsym") == 0) {
    g_route = kBySymbol;
  } else if (strcmp(value, "proc") == 0) {
    g_route = kByProc;
  } else if (strcmp(value, "linked") == 0 && find_linked("cuInit") != NULL) {
    g_route = kByLinker;
  } else {
    return -1;
  }
  return 0;
}

int driver_step(const char* name, const char* value, struct answer* out) {
  if (strncmp(name, "cu.", 3) != 0) return 0;
  name += 3;
  int number = -7;
  if (strcmp(name, "route") == 0) {
    put(out, "%d", choose_route(value));
  } else if (strcmp(name, "library") == 0) {
    g_library = value;
    put(out, "0");
  } else if (strcmp(name, "open") == 0) {
    put(out, "%s", handle() == NULL ? "null" : "set");
  } else if (strcmp(name, "init") == 0) {
    put(out, "%d", CALL(cuInit, (unsigned), (unsigned)atoi(value)));
  } else if (strcmp(name, "see") == 0) {
    put(out, "%d:", CALL(cuInit, (unsigned), 0));
    list(out);
  } else if (strcmp(name, "list") == 0) {
    list(out);
  } else if (strcmp(name, "version") == 0) {
    const int answer = CALL(cuDriverGetVersion, (int*), &number);
    put(out, "%d:%d", answer, number);
  } else if (strcmp(name, "count") == 0) {
    const int answer = CALL(cuDeviceGetCount, (int*), &number);
    put(out, "%d:%d", answer, number);
  } else if (strcmp(name, "get") == 0) {
    const int answer = CALL(cuDeviceGet, (int*, int), &number, atoi(value));
    put(out, "%d:%d", answer, number);
  } else if (strcmp(name, "insist") == 0) {
    insist(out, atoi(value));
  } else if (strcmp(name, "mode") == 0) {
    const int answer = CALL(cuDeviceGetAttribute, (int*, int, int), &number, 20, atoi(value));
    put(out, "%d:%d", answer, number);
  } else if (strcmp(name, "zeros") == 0) {
    call_with_zeros(out, value);
  } else if (strcmp(name, "context") == 0) {
    make_context(out, value);
  } else if (strcmp(name, "load") == 0) {
    load_code(out, value);
  } else if (strcmp(name, "memory") == 0) {
    uint64_t address = 0;
    const int answer = CALL(cuMemAlloc_v2, (uint64_t*, size_t), &address, 1024);
    put(out, "%d:%s", answer, address == 0 ? "null" : "set");
  } else if (strcmp(name, "error") == 0) {
    const char* text = NULL;
    const int answer = CALL(cuGetErrorName, (int, const char**), atoi(value), &text);
    put(out, "%d:%s", answer, text == NULL ? "null" : text);
  } else if (strcmp(name, "where") == 0) {
    put_place(out, by_symbol(value));
  } else if (strcmp(name, "ask") == 0) {
    ask(out, value);
  } else if (strcmp(name, "brandnew") == 0) {
    int (*function)(int*) = (int (*)(int*))find("cuBrandNewThing");
    const int answer = function == NULL ? -999 : function(&number);
    put(out, "%d:%d", answer, number);
  } else {
    return 0;
  }
  return 1;
}

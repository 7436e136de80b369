// SPDX-License-Identifier: Apache-2.0
// Preloaded before the guard. It appends to $CG_TRACE what a CUDA runtime asks the driver and what
// answer it gets, whatever code is between the two. It explains why a runtime answers 103. It
// defines dlsym, so RTLD_NEXT in a program would mean "after this library". Use it for diagnosis
// only.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void log_call(const char* format, ...) {
  char line[512];
  const char* path = getenv("CG_TRACE");
  if (path == NULL) return;
  va_list arguments;
  va_start(arguments, format);
  const int size = vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  const int log = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (log < 0) return;
  const ssize_t written = write(log, line, size < (int)sizeof line ? (size_t)size : sizeof line);
  (void)written;
  close(log);
}

static void* real_dlsym(void* handle, const char* name) {
  static void* (*next)(void*, const char*);
  static const char* const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
  for (int i = 0; i < 3 && next == NULL; ++i) {
    void* found = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    memcpy(&next, &found, sizeof next);
  }
  return next(handle, name);
}

static const char* file_of(void* address) {
  Dl_info info;
  if (address == NULL) return "null";
  if (dladdr(address, &info) == 0) return "?";
  const char* slash = strrchr(info.dli_fname, '/');
  return slash == NULL ? info.dli_fname : slash + 1;
}

static void print_bytes(const char* name, int device, int answer, const unsigned char* byte) {
  char text[40] = "";
  for (int i = 0; i < 16 && answer == 0; ++i) snprintf(text + 2 * i, 3, "%02x", byte[i]);
  log_call("%s(%d) = %d %s\n", name, device, answer, text);
}

static int (*g_init)(unsigned);
static int init(unsigned flags) {
  const int answer = g_init(flags);
  log_call("cuInit(%u) = %d\n", flags, answer);
  return answer;
}

static int (*g_version)(int*);
static int version(int* value) {
  const int answer = g_version(value);
  log_call("cuDriverGetVersion = %d %d\n", answer, *value);
  return answer;
}

static int (*g_count)(int*);
static int count(int* value) {
  const int answer = g_count(value);
  log_call("cuDeviceGetCount = %d %d\n", answer, *value);
  return answer;
}

static int (*g_get)(int*, int);
static int get(int* device, int index) {
  const int answer = g_get(device, index);
  log_call("cuDeviceGet(%d) = %d %d\n", index, answer, *device);
  return answer;
}

static int (*g_uuid)(void*, int);
static int uuid(void* to, int device) {
  const int answer = g_uuid(to, device);
  print_bytes("cuDeviceGetUuid", device, answer, to);
  return answer;
}

static int (*g_uuid_v2)(void*, int);
static int uuid_v2(void* to, int device) {
  const int answer = g_uuid_v2(to, device);
  print_bytes("cuDeviceGetUuid_v2", device, answer, to);
  return answer;
}

static int (*g_attribute)(int*, int, int);
static int attribute(int* value, int which, int device) {
  const int answer = g_attribute(value, which, device);
  if (answer != 0) log_call("cuDeviceGetAttribute(%d, %d) = %d\n", which, device, answer);
  return answer;
}

static int (*g_table)(const void**, const void*);
static int table(const void** to, const void* id) {
  const int answer = g_table(to, id);
  const unsigned char* byte = id;
  log_call("cuGetExportTable(%02x%02x%02x%02x...) = %d\n", byte[3], byte[2], byte[1], byte[0],
           answer);
  return answer;
}

static int (*g_retain)(void**, int);
static int retain(void** context, int device) {
  const int answer = g_retain(context, device);
  log_call("cuDevicePrimaryCtxRetain(%d) = %d\n", device, answer);
  return answer;
}

static int proc(const char* name, void** function, int asked, uint64_t flags);
static int proc_v2(const char* name, void** function, int asked, uint64_t flags, int* status);
static int (*g_proc)(const char*, void**, int, uint64_t);
static int (*g_proc_v2)(const char*, void**, int, uint64_t, int*);

static const struct {
  const char* name;
  void* real;
  void* ours;
} kTraced[] = {
    {"cuInit", &g_init, init},
    {"cuDriverGetVersion", &g_version, version},
    {"cuDeviceGetCount", &g_count, count},
    {"cuDeviceGet", &g_get, get},
    {"cuDeviceGetUuid", &g_uuid, uuid},
    {"cuDeviceGetUuid_v2", &g_uuid_v2, uuid_v2},
    {"cuDeviceGetAttribute", &g_attribute, attribute},
    {"cuGetExportTable", &g_table, table},
    {"cuDevicePrimaryCtxRetain", &g_retain, retain},
    {"cuGetProcAddress_v2", &g_proc_v2, proc_v2},
};

static void* traced(const char* name, void* found) {
  if (found == NULL || strncmp(name, "cu", 2) != 0) return found;
  for (size_t i = 0; i < sizeof kTraced / sizeof *kTraced; ++i) {
    if (strcmp(name, kTraced[i].name) == 0) {
      memcpy(kTraced[i].real, &found, sizeof found);
      return kTraced[i].ours;
    }
  }
  return found;
}

// The driver's own file is the usual case and is not worth a line.
static void print_lookup(const char* name, int asked, int answer, int status, void* found) {
  const char* file = file_of(found);
  if (answer != 0 || found == NULL || strncmp(file, "libcuda.so", 10) != 0) {
    log_call("cuGetProcAddress(%s, %d) = %d, status %d, in %s\n", name, asked, answer, status,
             file);
  }
}

static int proc(const char* name, void** function, int asked, uint64_t flags) {
  const int answer = g_proc(name, function, asked, flags);
  print_lookup(name, asked, answer, 0, *function);
  if (strcmp(name, "cuGetProcAddress") != 0) *function = traced(name, *function);
  return answer;
}

static int proc_v2(const char* name, void** function, int asked, uint64_t flags, int* status) {
  int own = 0;
  const int answer = g_proc_v2(name, function, asked, flags, status == NULL ? &own : status);
  print_lookup(name, asked, answer, status == NULL ? own : *status, *function);
  if (strcmp(name, "cuDeviceGetUuid") == 0 && asked >= 11040) {
    *function = traced("cuDeviceGetUuid_v2", *function);
  } else if (strcmp(name, "cuGetProcAddress") != 0) {
    *function = traced(name, *function);
  }
  return answer;
}

__attribute__((visibility("default"))) void* dlsym(void* handle, const char* name) {
  void* found = real_dlsym(handle, name);
  if (strncmp(name, "cu", 2) != 0 || found == NULL) return found;
  log_call("dlsym(%s) in %s\n", name, file_of(found));
  if (strcmp(name, "cuGetProcAddress") == 0) {
    memcpy(&g_proc, &found, sizeof found);
    return (void*)proc;
  }
  return traced(name, found);
}

// SPDX-License-Identifier: Apache-2.0
// Preloaded after the guard if strace is not available. It appends to $CG_RECORDED every
// /dev/nvidia* that the process opens through libc, as NVIDIA's driver and NVML do. At its end, it
// appends which of these files are still open and which driver files are mapped.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void note(const char* what, const char* path) {
  char line[1200];
  const char* file = getenv("CG_RECORDED");
  if (file == NULL) return;
  const int size = snprintf(line, sizeof line, "%d %s %.1024s\n", getpid(), what, path);
  int (*open_it)(const char*, int, ...) = (int (*)(const char*, int, ...))dlsym(RTLD_NEXT, "open");
  const int log =
      open_it == NULL ? -1 : open_it(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (log < 0) return;
  const ssize_t written = write(log, line, (size_t)size);
  (void)written;
  close(log);
}

static void note_open(const char* path) {
  if (path != NULL && strncmp(path, "/dev/nvidia", 11) == 0) note("open", path);
}

#define NEXT(name) __typeof__(&name) next = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define MODE(last)                         \
  va_list arguments;                       \
  va_start(arguments, last);               \
  const int mode = va_arg(arguments, int); \
  va_end(arguments)

#define DEFINE_OPEN(name)                      \
  int name(const char* path, int flags, ...) { \
    MODE(flags);                               \
    note_open(path);                           \
    NEXT(name);                                \
    return next(path, flags, mode);            \
  }
#define DEFINE_OPENAT(name)                                   \
  int name(int directory, const char* path, int flags, ...) { \
    MODE(flags);                                              \
    note_open(path);                                          \
    NEXT(name);                                               \
    return next(directory, path, flags, mode);                \
  }
#define DEFINE_FOPEN(name)                         \
  FILE* name(const char* path, const char* mode) { \
    note_open(path);                               \
    NEXT(name);                                    \
    return next(path, mode);                       \
  }
DEFINE_OPEN(open)
DEFINE_OPEN(open64)
DEFINE_OPENAT(openat)
DEFINE_OPENAT(openat64)
DEFINE_FOPEN(fopen)
DEFINE_FOPEN(fopen64)

static void note_descriptors(void) {
  DIR* directory = opendir("/proc/self/fd");
  if (directory == NULL) return;
  for (struct dirent* entry; (entry = readdir(directory)) != NULL;) {
    char path[300];
    char target[1024];
    snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
    const ssize_t size = readlink(path, target, sizeof target - 1);
    if (size <= 0) continue;
    target[size] = '\0';
    if (strncmp(target, "/dev/nvidia", 11) == 0) note("held", target);
  }
  closedir(directory);
}

static void note_maps(void) {
  char line[4096];
  char last[4096] = "";
  FILE* maps = fopen("/proc/self/maps", "re");
  if (maps == NULL) return;
  while (fgets(line, sizeof line, maps) != NULL) {
    char* path = strchr(line, '/');
    if (path == NULL || (strstr(path, "libcuda") == NULL && strstr(path, "libnvidia-") == NULL)) {
      continue;
    }
    path[strcspn(path, "\n")] = '\0';
    if (strcmp(path, last) == 0) continue;
    snprintf(last, sizeof last, "%s", path);
    note("mapped", path);
  }
  fclose(maps);
}

__attribute__((destructor)) static void note_end(void) {
  if (getenv("CG_RECORDED") == NULL) return;
  note_descriptors();
  note_maps();
}

// A forked child of a test ends by this call.
__attribute__((noreturn)) void _exit(int status) {
  void (*next)(int) = (void (*)(int))dlsym(RTLD_NEXT, "_exit");
  note_end();
  next(status);
  __builtin_unreachable();
}

// SPDX-License-Identifier: Apache-2.0
// Preloaded after the guard. It appends to $CG_RECORDED which file calls getenv for the variables
// that NVIDIA's driver reads. If the guard has redirected the driver's import slot, the driver's
// call does not reach this library.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

extern char** environ;

static char* look_up(const char* name) {
  const size_t length = strlen(name);
  for (char** entry = environ; entry != NULL && *entry != NULL; ++entry) {
    if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=') return *entry + length + 1;
  }
  return NULL;
}

__attribute__((visibility("default"))) char* getenv(const char* name) {
  char* value = look_up(name);
  if (strcmp(name, "CUDA_VISIBLE_DEVICES") != 0 && strcmp(name, "CUDA_DEVICE_ORDER") != 0) {
    return value;
  }
  Dl_info info;
  char line[1200];
  const char* path = look_up("CG_RECORDED");
  const char* file = dladdr(__builtin_return_address(0), &info) != 0 ? info.dli_fname : "?";
  const int log = path == NULL ? -1 : open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (log < 0) return value;
  const int size = snprintf(line, sizeof line, "%d getenv %s %.900s\n", getpid(), name, file);
  const ssize_t written = write(log, line, (size_t)size);
  (void)written;
  close(log);
  return value;
}

// SPDX-License-Identifier: Apache-2.0
// A driver with two GPUs, of which CUDA_VISIBLE_DEVICES selects. CG_SICK names what is wrong. Each
// cuInit adds a line to CG_ASKED.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int has(const char* what) {
  const char* own = getenv("CG_SICK");
  return own != NULL && strcmp(own, what) == 0;
}
static void hang(void) {
  for (;;) pause();
}
static int visible(int position) {
  const char* list = getenv("CUDA_VISIBLE_DEVICES");
  if (list == NULL) return position < 2 ? position : -1;
  for (; position > 0 && list != NULL; --position) {
    list = strchr(list, ',');
    if (list != NULL) ++list;
  }
  return list == NULL || atoi(list) > 1 ? -1 : atoi(list);
}
int cuInit(unsigned flags) {
  const char* log = getenv("CG_ASKED");
  FILE* stream = log == NULL ? NULL : fopen(log, "a");
  if (stream != NULL) fprintf(stream, "%d\n", (int)getpid()), fclose(stream);
  if (has("closes descriptors"))
    for (int fd = 0; fd < 64; ++fd) close(fd);
  if (has("forks") && fork() == 0) hang();
  if (has("signals itself")) kill(getpid(), SIGTERM);
  return has("fails") ? 999 : 0 * (int)flags;
}
int cuDeviceGetCount(int* count) {
  if (has("hangs in count")) hang();
  if (has("fails in count")) return 3;
  *count = 0;
  while (!has("no GPU") && visible(*count) >= 0) ++*count;
  return 0;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return 0;
}
int cuDeviceGetName(char* name, int length, int device) {
  if (has("hangs for GPU 1") && visible(device) == 1) hang();
  snprintf(name, length, "fake");
  return 0;
}
int cuDeviceGetUuid(void* uuid, int device) {
  memset(uuid, device, 16);
  return 0;
}

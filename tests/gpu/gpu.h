// SPDX-License-Identifier: Apache-2.0
// The programs of tests/gpu share this: options key=value, answers as key=value words, clocks. Only
// runtime.c uses NVIDIA's headers, so that the other programs build anywhere.
#ifndef CUDAGUARD_TESTS_GPU_GPU_H
#define CUDAGUARD_TESTS_GPU_GPU_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int g_argc;
static char** g_argv;

__attribute__((unused)) static const char* option(const char* key, const char* otherwise) {
  const size_t length = strlen(key);
  for (int i = 1; i < g_argc; ++i) {
    if (strncmp(g_argv[i], key, length) == 0 && g_argv[i][length] == '=') {
      return g_argv[i] + length + 1;
    }
  }
  return otherwise;
}

__attribute__((unused)) static int number(const char* key, int otherwise) {
  const char* text = option(key, NULL);
  return text == NULL ? otherwise : atoi(text);
}

__attribute__((unused)) static int is(const char* key, const char* value) {
  return strcmp(option(key, ""), value) == 0;
}

__attribute__((unused)) static uint64_t now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000U + (uint64_t)time.tv_nsec;
}

// Formats 16 bytes as NVIDIA writes a UUID.
__attribute__((unused)) static void print_uuid(const char* key, int index, const void* given) {
  const unsigned char* byte = given;
  printf("%s%d=GPU-", key, index);
  for (int i = 0; i < 16; ++i) {
    printf("%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", byte[i]);
  }
  printf(" ");
}

// In the answers, a name must be one word.
__attribute__((unused)) static void print_word(const char* key, int index, char* text) {
  for (char* letter = text; *letter != '\0'; ++letter) {
    if (*letter == ' ') *letter = '_';
  }
  printf("%s%d=%s ", key, index, text);
}

// Waits until the parent closes this program's stdin.
__attribute__((unused)) static void wait_for_end_of_input(void) {
  char letter;
  fflush(stdout);
  while (read(0, &letter, 1) > 0) {
  }
}

// Returns the name, without directory, of the file that holds this address.
__attribute__((unused)) static const char* file_of(const void* address) {
  Dl_info info;
  if (address == NULL) return "null";
  if (dladdr((void*)address, &info) == 0 || info.dli_fname == NULL) return "?";
  const char* slash = strrchr(info.dli_fname, '/');
  return slash == NULL ? info.dli_fname : slash + 1;
}

static inline int by_size(const void* left, const void* right) {
  const double a = *(const double*)left;
  const double b = *(const double*)right;
  return a < b ? -1 : a > b;
}

// Measures nanoseconds per call: the median, 10th and 90th percentile of many short blocks.
#define TIME_CALLS(call)                                                          \
  do {                                                                            \
    enum { kBlocks = 400, kCalls = 500 };                                         \
    static double block[kBlocks];                                                 \
    for (int b = 0; b < kBlocks; ++b) {                                           \
      const uint64_t start = now_ns();                                            \
      for (int c = 0; c < kCalls; ++c) call;                                      \
      block[b] = (double)(now_ns() - start) / kCalls;                             \
    }                                                                             \
    qsort(block, kBlocks, sizeof *block, by_size);                                \
    printf("ns=%.2f p10=%.2f p90=%.2f ", block[kBlocks / 2], block[kBlocks / 10], \
           block[kBlocks * 9 / 10]);                                              \
  } while (0)

// A program calls these two NVML functions before it uses CUDA.
typedef int (*nvml_init)(void);
typedef int (*nvml_count)(unsigned*);
typedef int (*nvml_by_index)(unsigned, void**);
typedef int (*nvml_uuid)(void*, char*, unsigned);

__attribute__((unused)) static void print_nvml(const char* prefix) {
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (library == NULL) {
    printf("%sinit=null ", prefix);
    return;
  }
  nvml_init init = (nvml_init)dlsym(library, "nvmlInit_v2");
  nvml_count get_count = (nvml_count)dlsym(library, "nvmlDeviceGetCount_v2");
  nvml_by_index by_index = (nvml_by_index)dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
  nvml_uuid get_uuid = (nvml_uuid)dlsym(library, "nvmlDeviceGetUUID");
  if (init == NULL || get_count == NULL || by_index == NULL || get_uuid == NULL) {
    printf("%sinit=partial ", prefix);
    return;
  }
  unsigned count = 0;
  printf("%sinit=%d ", prefix, init());
  const int answer = get_count(&count);
  printf("%scountRc=%d %scount=%u ", prefix, answer, prefix, count);
  for (unsigned i = 0; i < count; ++i) {
    void* device = NULL;
    char uuid[128] = "none";
    if (by_index(i, &device) == 0) get_uuid(device, uuid, sizeof uuid);
    printf("%suuid%u=%s ", prefix, i, uuid);
  }
}

#endif

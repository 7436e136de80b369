// SPDX-License-Identifier: Apache-2.0
// Every entry-point program makes these calls once it has the entries, and prints key=value words.
// It uses only write(2) and a buffer on the stack, because it also runs in signal handlers and
// destructors.
#ifndef CUDAGUARD_TESTS_PROGRAMS_PROBE_H
#define CUDAGUARD_TESTS_PROGRAMS_PROBE_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// C programs include this too.
// NOLINTBEGIN(modernize-use-nullptr,cert-dcl50-cpp)

typedef void* (*probe_finder)(void* context, const char* name);

__attribute__((unused, format(printf, 2, 3))) static void probe_print(int file, const char* format,
                                                                      ...) {
  char line[1024];
  va_list arguments;
  va_start(arguments, format);
  const int size = vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  const ssize_t written = write(file, line, size < (int)sizeof line ? (size_t)size : sizeof line);
  (void)written;
}

static inline const char* probe_word(const char* text) { return text == NULL ? "null" : text; }

// Makes the calls with which a typical program begins, through find().
__attribute__((unused)) static void probe_cuda(int file, probe_finder find, void* context) {
  int (*init)(unsigned) = (int (*)(unsigned))find(context, "cuInit");
  int (*get_version)(int*) = (int (*)(int*))find(context, "cuDriverGetVersion");
  int (*get_count)(int*) = (int (*)(int*))find(context, "cuDeviceGetCount");
  int (*get_name)(int, const char**) = (int (*)(int, const char**))find(context, "cuGetErrorName");
  int (*get_table)(const void**, const void*) =
      (int (*)(const void**, const void*))find(context, "cuGetExportTable");
  if (init == NULL || get_version == NULL || get_count == NULL || get_name == NULL ||
      get_table == NULL) {
    probe_print(file, "cuInit=%s\n", init == NULL ? "null" : "partial");
    return;
  }
  const int answer = init(0);
  const int answer_flags = init(1);
  int version = -7;
  const int version_answer = get_version(&version);
  int count = -7;
  const int count_answer = get_count(&count);
  const char* name = NULL;
  get_name(100, &name);
  const void* table = NULL;
  const int table_answer = get_table(&table, "0123456789abcdef");
  const int known = find(context, "cuNoSuchFunctionEver") != NULL;
  probe_print(file,
              "cuInit=%d cuInit1=%d versionRc=%d version=%d countRc=%d count=%d name=%s export=%d "
              "table=%s unknown=%s\n",
              answer, answer_flags, version_answer, version, count_answer, count, probe_word(name),
              table_answer, table == NULL ? "null" : "set", known ? "found" : "null");
}

__attribute__((unused)) static void probe_nvml(int file, probe_finder find, void* context) {
  int (*init)(void) = (int (*)(void))find(context, "nvmlInit_v2");
  int (*init_old)(void) = (int (*)(void))find(context, "nvmlInit");
  int (*init_flags)(unsigned) = (int (*)(unsigned))find(context, "nvmlInitWithFlags");
  int (*get_count)(unsigned*) = (int (*)(unsigned*))find(context, "nvmlDeviceGetCount_v2");
  int (*get_count_old)(unsigned*) = (int (*)(unsigned*))find(context, "nvmlDeviceGetCount");
  int (*by_index)(unsigned, void**) =
      (int (*)(unsigned, void**))find(context, "nvmlDeviceGetHandleByIndex_v2");
  int (*by_uuid)(const char*, void**) =
      (int (*)(const char*, void**))find(context, "nvmlDeviceGetHandleByUUID");
  const char* (*error_text)(int) = (const char* (*)(int))find(context, "nvmlErrorString");
  int (*shutdown_nvml)(void) = (int (*)(void))find(context, "nvmlShutdown");
  if (init == NULL || init_old == NULL || init_flags == NULL || get_count == NULL ||
      get_count_old == NULL || by_index == NULL || by_uuid == NULL || error_text == NULL ||
      shutdown_nvml == NULL) {
    probe_print(file, "nvmlInit=%s\n", init == NULL ? "null" : "partial");
    return;
  }
  const int answer = init();
  const int answer_old = init_old();
  const int answer_flags = init_flags(0);
  unsigned count = 77;
  const int count_answer = get_count(&count);
  unsigned count_old = 77;
  get_count_old(&count_old);
  void* device = NULL;
  const int index_answer = by_index(0, &device);
  const int uuid_answer = by_uuid("GPU-12345678-1234-1234-1234-123456789abc", &device);
  const char* text = error_text(2);
  const int known = find(context, "nvmlNoSuchFunctionEver") != NULL;
  probe_print(file,
              "nvmlInit=%d nvmlInitOld=%d nvmlInitWithFlags=%d countRc=%d count=%u countOld=%u "
              "byIndex=%d byUuid=%d shutdown=%d unknown=%s text=%.7s\n",
              answer, answer_old, answer_flags, count_answer, count, count_old, index_answer,
              uuid_answer, shutdown_nvml(), known ? "found" : "null", probe_word(text));
}

// NOLINTEND(modernize-use-nullptr,cert-dcl50-cpp)

#endif

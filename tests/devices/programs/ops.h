// SPDX-License-Identifier: Apache-2.0
// The steps that these programs take. Each argument is one step, "NAME" or "NAME=VALUE", and prints
// one line "[label.]NAME=answer".
#ifndef CUDAGUARD_TESTS_DEVICES_OPS_H
#define CUDAGUARD_TESTS_DEVICES_OPS_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kMostText = 8192, kMostDevices = 64 };

// Collects the text of an answer.
struct answer {
  size_t used;
  char text[kMostText];
};

__attribute__((unused, format(printf, 2, 3))) static void put(struct answer* out,
                                                              const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int size =
      vsnprintf(out->text + out->used, sizeof out->text - out->used, format, arguments);
  va_end(arguments);
  if (size > 0) out->used += (size_t)size;
  if (out->used >= sizeof out->text) out->used = sizeof out->text - 1;
}

__attribute__((unused)) static void put_uuid(struct answer* out, const unsigned char* bytes) {
  for (int i = 0; i < 16; ++i) {
    put(out, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", bytes[i]);
  }
}

// A blank would end a word of the answer.
__attribute__((unused)) static void put_word(struct answer* out, const char* text) {
  put(out, "%s", text);
  for (char* at = out->text; *at != '\0'; ++at) {
    if (*at == ' ' || *at == '\n') *at = '_';
  }
}

// Finds the functions of CALLS in a program that is linked to them. The others have NO_CALLS.
#define NO_CALLS(X)
#define IF_NAMED(function, parameters) \
  if (strcmp(name, #function) == 0) return (void*)function;
#define FIND_LINKED(CALLS)                     \
  static void* find_linked(const char* name) { \
    (void)name;                                \
    CALLS(IF_NAMED)                            \
    return NULL;                               \
  }

/// Each function takes the step and returns 1 if the step is one of its own ("cu.count",
/// "nv.count", "rt.count").
int driver_step(const char* name, const char* value, struct answer* out);
int nvml_step(const char* name, const char* value, struct answer* out);
int runtime_step(const char* name, const char* value, struct answer* out);

typedef int (*step_function)(const char* name, const char* value, struct answer* out);

#endif

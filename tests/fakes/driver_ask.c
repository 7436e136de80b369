// SPDX-License-Identifier: Apache-2.0
// The fake driver's answers to the calls that need no device.
#include "driver.h"

static const struct {
  int code;
  const char* name;
  const char* text;
} kErrors[] = {
#define CG_ERROR(code, name, text) {code, #name, text},
#include "driver_errors.inc"
#undef CG_ERROR
};

static int error_text(int error, const char** text, int as_name) {
  if (text == NULL) return kInvalidValue;
  *text = NULL;
  for (size_t i = 0; i < sizeof kErrors / sizeof *kErrors; ++i) {
    if (kErrors[i].code == error) *text = as_name ? kErrors[i].name : kErrors[i].text;
  }
  return *text == NULL ? kInvalidValue : kSuccess;
}

FAKE(cuGetErrorName, error_text(error, text, 1), int error, const char** text)
FAKE(cuGetErrorString, error_text(error, text, 0), int error, const char** text)

int cuGetExportTable(const void** table, const void* uuid) {
  (void)uuid;
  fake_log("", "cuGetExportTable");
  *table = NULL;
  return kNotFound;
}

enum { kAllFlags = 3 };

int cuGetProcAddress(const char* name, void** entry, int version, uint64_t flags) {
  if (flags > kAllFlags || name == NULL || entry == NULL) return kInvalidValue;
  fake_log("cuGetProcAddress:", name);
  void* found = NULL;
  if (look_up(name, &found, version, flags) != 0) return kNotFound;
  *entry = found;
  return kSuccess;
}

int cuGetProcAddress_v2(const char* name, void** entry, int version, uint64_t flags, int* status) {
  if (flags > kAllFlags || name == NULL || entry == NULL) return kInvalidValue;
  fake_log("cuGetProcAddress_v2:", name);
  const int found = look_up(name, entry, version, flags);
  if (status != NULL) *status = found;
  return kSuccess;
}

// SPDX-License-Identifier: Apache-2.0
// The fake NVML's other names return 999 once it is initialised.
#include "fake_log.h"

extern int fake_nvml_users __attribute__((visibility("hidden")));

#define CG_NAME(name)                     \
  int name(void);                         \
  __attribute__((weak)) int name(void) {  \
    fake_log("", #name);                  \
    return fake_nvml_users > 0 ? 999 : 1; \
  }
#include "nvml_names.inc"
#undef CG_NAME

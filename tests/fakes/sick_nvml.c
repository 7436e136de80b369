// SPDX-License-Identifier: Apache-2.0
// A fake NVML with a fault: CG_SICK_NVML is "hangs", "crashes" or "fails".
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int nvmlInit_v2(void) {
  const char* const fault = getenv("CG_SICK_NVML");
  if (fault == NULL) return 0;
  while (strcmp(fault, "hangs") == 0) pause();
  if (strcmp(fault, "crashes") == 0) raise(SIGSEGV);
  return 9;  // NVML_ERROR_DRIVER_NOT_LOADED
}

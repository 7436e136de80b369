// SPDX-License-Identifier: Apache-2.0
// A PAM module that is linked to the driver. It allows everything and prints cuInit's answer.
#include <stdio.h>

int cuInit(unsigned flags);

// The parameters are those of <security/pam_modules.h>: the handle, flags and the words of the
// configuration. 0 is PAM_SUCCESS.
int pam_sm_authenticate(void* handle, int flags, int count, const char** words) {
  (void)handle, (void)flags, (void)count, (void)words;
  printf("cuInit=%d\n", cuInit(0));
  fflush(stdout);
  return 0;
}

int pam_sm_acct_mgmt(void* handle, int flags, int count, const char** words) {
  return pam_sm_authenticate(handle, flags, count, words);
}

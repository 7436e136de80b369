// SPDX-License-Identifier: Apache-2.0
// Prints what its library answers. The library asks the driver, or has a variable with the name of
// a driver's function. With COPY it prints what this expression makes of its copy of the variable.
// With OWN it has such a variable itself.
#include <stdio.h>
int use(void);
#ifdef OWN
int (*cuInit)(unsigned);
#endif
#ifdef COPY
extern int (*cuInit)(unsigned);
#else
#define COPY use()
#endif
int main(void) {
  printf("cuInit=%d\n", COPY);
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// A library that is linked to the driver and asks it in its constructor, which runs before the
// guard's.
#include <dlfcn.h>

#include "linked.h"

__attribute__((constructor)) static void ask(void) {
  // The call of a function would be bound to the guard's export.
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(RTLD_NEXT, "cuInit");
  probe_print(1, "cuInit=%d\n", init == NULL ? -1 : init(0));
}

// SPDX-License-Identifier: Apache-2.0
// An audit library that ends the process.
#include <stdlib.h>
unsigned la_version(unsigned version) {
  abort();
  return version;
}

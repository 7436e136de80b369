// SPDX-License-Identifier: Apache-2.0
// A library that is linked to the driver.
int cuInit(unsigned);
int use(void) { return cuInit(0); }

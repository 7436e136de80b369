// SPDX-License-Identifier: Apache-2.0
// A library with a function of its own that has the name of a driver's function.
int cuInit(unsigned x) { return 5 + (int)x; }
int use(void) { return cuInit(0); }

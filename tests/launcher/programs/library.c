// SPDX-License-Identifier: Apache-2.0
// A library that has nothing to do with CUDA.
int use(void) { return 0; }

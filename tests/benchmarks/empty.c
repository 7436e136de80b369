// SPDX-License-Identifier: Apache-2.0
// The least that a preloaded library can be.
int cg_bench_empty(void) { return 0; }

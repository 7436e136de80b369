// SPDX-License-Identifier: Apache-2.0
// An empty library, which is the minimum that can be preloaded.
int cg_bench_empty(unsigned flags) { return flags == 0 ? 0 : 1; }

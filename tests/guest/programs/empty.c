// SPDX-License-Identifier: Apache-2.0
// A preloaded library that does nothing: what any preload costs and changes.
int cg_empty_library(void);
int cg_empty_library(void) { return 0; }

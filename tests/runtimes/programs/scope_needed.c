// SPDX-License-Identifier: Apache-2.0
// Replaces a library that a node needs while the node is linked.
#ifdef VERSIONED
__attribute__((visibility("default"))) int cudaSetDevice(int device);
int cudaSetDevice(int device) { return device; }
__attribute__((visibility("default"))) int cuInit(unsigned flags);
int cuInit(unsigned flags) { return (int)flags; }
#else
extern int scope_needed;
int scope_needed;
#endif

// SPDX-License-Identifier: Apache-2.0
// Definitions of cudaSetDevice and cuInit that return the number of their node. They are in their
// own file, so that no compiler binds scope_node.c's calls to them. V1 and V2 select that version;
// with both, V2 is the default. HIDDEN provides V1 only for callers that request it.
#define EXPORT __attribute__((visibility("default")))

int scope_number(void);

#if defined(HIDDEN) || (defined(V1) && defined(V2))
EXPORT int first(int device);
int first(int device) { return 400 + scope_number() + device; }
__asm__(".symver first, cudaSetDevice@V1");
EXPORT int first_init(unsigned flags);
int first_init(unsigned flags) { return 400 + scope_number() + (int)flags; }
__asm__(".symver first_init, cuInit@V1");
#endif
#if defined(V1) && defined(V2)
EXPORT int second(int device);
int second(int device) { return 200 + scope_number() + device; }
__asm__(".symver second, cudaSetDevice@@V2");
EXPORT int second_init(unsigned flags);
int second_init(unsigned flags) { return 200 + scope_number() + (int)flags; }
__asm__(".symver second_init, cuInit@@V2");
#elif !defined(HIDDEN)
EXPORT int cudaSetDevice(int device);
int cudaSetDevice(int device) { return 200 + scope_number() + device; }
EXPORT int cuInit(unsigned flags);
int cuInit(unsigned flags) { return 200 + scope_number() + (int)flags; }
#endif

// SPDX-License-Identifier: Apache-2.0
// A null driver with a deliberate defect: all names lead to one body. UCX can patch only the first
// of them.
#define ALIAS(name) __asm__(".globl " #name "\n.type " #name ",@function\n.set " #name ",body")

__attribute__((used)) int body(void) __asm__("body");
int body(void) { return 3; }

ALIAS(cuMemAlloc);
ALIAS(cuMemAlloc_v2);
ALIAS(cuMemAllocManaged);
ALIAS(cuMemAllocPitch);
ALIAS(cuMemAllocPitch_v2);
ALIAS(cuMemMap);
ALIAS(cuModuleGetGlobal_v2);
ALIAS(cuMemAllocAsync);
ALIAS(cuMemAllocFromPoolAsync);
ALIAS(cuLibraryGetGlobal);
ALIAS(cuMemFree);
ALIAS(cuMemFree_v2);
ALIAS(cuMemFreeHost);
ALIAS(cuMemUnmap);
ALIAS(cuMemFreeAsync);
ALIAS(cuDeviceGetCount);
ALIAS(cuGetErrorString);
ALIAS(cuInit);

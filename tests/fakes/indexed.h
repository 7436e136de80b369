// SPDX-License-Identifier: Apache-2.0
// Finds the device indices among the arguments of a call of indexed.inc. The fakes, which refuse a
// bad index, and the program that makes the calls use it.
#ifndef CUDAGUARD_TESTS_FAKES_INDEXED_H
#define CUDAGUARD_TESTS_FAKES_INDEXED_H

#include <stdint.h>
#include <string.h>

enum { kMostArguments = 8, kOnDevice = 1 };

// Returns the offset of the index in the object that a pointer of this kind points to, or -1 for
// another kind.
static inline int offset_of_index(char kind) {
  switch (kind) {
    case 'v':
      return 0;
    case 'L':  // CUmemLocation: type, id
    case 'A':  // CUmemAccessDesc begins with a CUmemLocation
      return 4;
    case 'P':  // CUmemAllocationProp, CUmemPoolProps: two words precede it
      return 12;
    case 'M':  // cudaMemcpy3DPeerParms: srcDevice
      return 64;
    default:
      return -1;
  }
}

static inline int index_in(char kind, intptr_t argument) {
  const int offset = offset_of_index(kind);
  int index = 0;
  if (kind == 'd') return (int)argument;
  if (kind == 'l') return (int)((uint64_t)argument >> 32);
  if (offset >= 0) memcpy(&index, (const char*)argument + offset, sizeof index);
  return index;
}

// Returns 1 if all indices are below `count`.
static inline int indices_are_good(const char* layout, const intptr_t* arguments, int count) {
  for (int i = 0; layout[i] != '\0' && i < kMostArguments; ++i) {
    const int index = index_in(layout[i], arguments[i]);
    if (index < 0 || index >= count) return 0;
  }
  return 1;
}

#endif

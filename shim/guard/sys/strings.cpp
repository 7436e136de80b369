// SPDX-License-Identifier: Apache-2.0
// What the compiler calls for short texts. ld.so would look up libc's functions at the start of
// each process, and call their IFUNC resolvers; here they are only the guard's. Not for long texts.
#include <cstddef>

extern "C" {

// An empty asm statement keeps the compiler from making a call of the loop: to itself.

size_t strlen(const char* text) {
  const char* end = text;
  for (; *end != '\0'; ++end) asm("" : "+r"(end));
  return static_cast<size_t>(end - text);
}

int memcmp(const void* one, const void* other, size_t size) {
  const auto* a = static_cast<const unsigned char*>(one);
  const auto* b = static_cast<const unsigned char*>(other);
  for (; size != 0; --size, ++a, ++b) {
    asm("" : "+r"(a));
    if (*a != *b) return *a - *b;
  }
  return 0;
}

void* memchr(const void* text, int wanted, size_t size) {
  const auto* at = static_cast<const unsigned char*>(text);
  for (; size != 0; --size, ++at) {
    asm("" : "+r"(at));
    if (*at == static_cast<unsigned char>(wanted)) return const_cast<unsigned char*>(at);
  }
  return nullptr;
}
}

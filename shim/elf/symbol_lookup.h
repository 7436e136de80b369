// SPDX-License-Identifier: Apache-2.0
//
// Reading the symbol table of an object that is already mapped, without the loader's help: no call
// leaves this header, nothing is locked, allocated or written. The guard finds libc's own `dlsym`
// with it, the stand-ins find the guard from inside a dlmopen namespace.
#pragma once

#include <elf.h>
#include <link.h>

#include <cstddef>
#include <cstdint>

namespace cudaguard {
namespace elf_detail {

inline bool same(const char* a, const char* b) {
  while (*a != '\0' && *a == *b) {
    ++a;
    ++b;
  }
  return *a == *b;
}

// glibc relocates the pointers of a dynamic section in place, but not those of the vDSO; musl
// relocates none. An address below the load base is therefore an offset.
inline ElfW(Addr) absolute(ElfW(Addr) value, ElfW(Addr) base) {
  return value < base ? value + base : value;
}

struct Tables {
  const ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
  const uint32_t* gnu_hash = nullptr;
  const uint32_t* sysv_hash = nullptr;
  const ElfW(Half) * versions = nullptr;
  ElfW(Addr) base = 0;
};

inline Tables read_tables(const ElfW(Dyn) * dynamic, ElfW(Addr) base) {
  Tables t;
  t.base = base;
  for (; dynamic != nullptr && dynamic->d_tag != DT_NULL; ++dynamic) {
    const ElfW(Addr) at = absolute(dynamic->d_un.d_ptr, base);
    switch (dynamic->d_tag) {
      case DT_SYMTAB:
        t.symbols = reinterpret_cast<const ElfW(Sym)*>(at);
        break;
      case DT_STRTAB:
        t.strings = reinterpret_cast<const char*>(at);
        break;
      case DT_GNU_HASH:
        t.gnu_hash = reinterpret_cast<const uint32_t*>(at);
        break;
      case DT_HASH:
        t.sysv_hash = reinterpret_cast<const uint32_t*>(at);
        break;
      case DT_VERSYM:
        t.versions = reinterpret_cast<const ElfW(Half)*>(at);
        break;
      default:
        break;
    }
  }
  return t;
}

// What `index` gives for `name`: a plain defined symbol's address, else null. An old version of a
// name (the hidden bit) counts as `older`, to be used only when there is no current one.
inline const void* match(const Tables& t, uint32_t index, const char* name, const void** older) {
  const ElfW(Sym)& symbol = t.symbols[index];
  const unsigned type = symbol.st_info & 0xf;  // the same bits in both ELF classes
  if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx == SHN_ABS || type == STT_TLS ||
      type == STT_GNU_IFUNC || !same(t.strings + symbol.st_name, name)) {
    return nullptr;
  }
  const void* address = reinterpret_cast<const void*>(t.base + symbol.st_value);
  constexpr ElfW(Half) kHidden = 0x8000;
  if (t.versions != nullptr && (t.versions[index] & kHidden) != 0) {
    if (*older == nullptr) *older = address;
    return nullptr;
  }
  return address;
}

inline const void* by_gnu_hash(const Tables& t, const char* name, const void** older) {
  const uint32_t bucket_count = t.gnu_hash[0];
  const uint32_t first_index = t.gnu_hash[1];
  const uint32_t bloom_words = t.gnu_hash[2];
  if (bucket_count == 0) return nullptr;
  uint32_t hash = 5381;
  for (const char* c = name; *c != '\0'; ++c) hash = hash * 33 + static_cast<unsigned char>(*c);

  const uint32_t* buckets = t.gnu_hash + 4 + bloom_words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
  const uint32_t* chain = buckets + bucket_count;
  uint32_t index = buckets[hash % bucket_count];
  if (index < first_index) return nullptr;  // an empty bucket holds 0
  for (;; ++index) {
    const uint32_t entry = chain[index - first_index];
    if ((entry | 1U) == (hash | 1U)) {
      if (const void* found = match(t, index, name, older)) return found;
    }
    if ((entry & 1U) != 0) return nullptr;  // the last one of its bucket
  }
}

inline const void* by_sysv_hash(const Tables& t, const char* name, const void** older) {
  const uint32_t bucket_count = t.sysv_hash[0];
  if (bucket_count == 0) return nullptr;
  uint32_t hash = 0;
  for (const char* c = name; *c != '\0'; ++c) {
    hash = (hash << 4) + static_cast<unsigned char>(*c);
    hash = (hash ^ ((hash & 0xf0000000U) >> 24)) & 0x0fffffffU;
  }
  const uint32_t* buckets = t.sysv_hash + 2;
  const uint32_t* chain = buckets + bucket_count;
  for (uint32_t index = buckets[hash % bucket_count]; index != STN_UNDEF; index = chain[index]) {
    if (const void* found = match(t, index, name, older)) return found;
  }
  return nullptr;
}

}  // namespace elf_detail

// The address of the symbol `name` that the object with this dynamic section *defines* (functions
// and data; no TLS, no ifunc), or null. `base` is its load base (dlpi_addr, l_addr).
inline const void* elf_symbol(const ElfW(Dyn) * dynamic, ElfW(Addr) base, const char* name) {
  const elf_detail::Tables t = elf_detail::read_tables(dynamic, base);
  if (t.symbols == nullptr || t.strings == nullptr) return nullptr;
  const void* older = nullptr;
  const void* found = nullptr;
  if (t.gnu_hash != nullptr) {
    found = elf_detail::by_gnu_hash(t, name, &older);
  } else if (t.sysv_hash != nullptr) {
    found = elf_detail::by_sysv_hash(t, name, &older);
  }
  return found != nullptr ? found : older;
}

// The object's DT_SONAME, or null when it has none.
inline const char* elf_soname(const ElfW(Dyn) * dynamic, ElfW(Addr) base) {
  const char* strings = nullptr;
  ElfW(Addr) offset = 0;
  bool has_name = false;
  for (; dynamic != nullptr && dynamic->d_tag != DT_NULL; ++dynamic) {
    if (dynamic->d_tag == DT_STRTAB) {
      strings = reinterpret_cast<const char*>(elf_detail::absolute(dynamic->d_un.d_ptr, base));
    } else if (dynamic->d_tag == DT_SONAME) {
      offset = dynamic->d_un.d_val;
      has_name = true;
    }
  }
  return has_name && strings != nullptr ? strings + offset : nullptr;
}

}  // namespace cudaguard

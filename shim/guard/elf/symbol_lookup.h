// SPDX-License-Identifier: Apache-2.0
// Reads the symbol table of an object that is already mapped, without the loader's help. This
// header calls no other code; it locks, allocates and writes nothing. The guard uses it to find
// libc's own `dlsym`, and the null drivers use it to find the guard from inside a dlmopen
// namespace.
#pragma once

#include <elf.h>
#include <link.h>

#include <cstddef>
#include <cstdint>

namespace cudaguard {
namespace elf_detail {
// Functions that are not small are not inlined, so that a library has one copy of each, however its
// files are optimised.

[[gnu::noinline]] inline bool same(const char* a, const char* b) {
  while (*a != '\0' && *a == *b) {
    ++a;
    ++b;
  }
  return *a == *b;
}

// glibc relocates the pointers of a dynamic section in place, but not those of the vDSO; musl
// relocates none. An address below the load base is therefore an offset. The vDSO of gVisor and of
// Linux before 3.16 is linked at 0xffffffffff700000, which is below each base as a signed number.
inline ElfW(Addr) absolute(ElfW(Addr) value, ElfW(Addr) base) {
  const bool is_offset = static_cast<ElfW(Sxword)>(value) < static_cast<ElfW(Sxword)>(base);
  return is_offset ? value + base : value;
}

struct Tables {
  const ElfW(Sym) * symbols;
  const char* strings;
  const uint32_t* gnu_hash;
  const uint32_t* sysv_hash;
  const ElfW(Half) * versions;
  const char* needed_versions;
  const char* defined_versions;
  ElfW(Addr) base;
  // Null accepts any definition. Otherwise the version of an import, as ld.so takes it: "" for
  // none.
  const char* wanted;
  // Searches as dlvsym does: skips definitions without a version, and accepts an import with an
  // address, by which a program at a fixed address names its PLT entry.
  bool as_dlvsym = false;
};

// Returns a value of the dynamic section, 0 if there is none.
[[gnu::noinline, gnu::hot]] inline ElfW(Addr)
    dynamic_value(const ElfW(Dyn) * entry, ElfW(Sxword) tag) {
  for (; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == tag) return entry->d_un.d_val;
  }
  return 0;
}

// Returns the value as an address.
[[gnu::noinline, gnu::hot]] inline const void* dynamic_address(const ElfW(Dyn) * dynamic,
                                                               ElfW(Addr) base, ElfW(Sxword) tag) {
  const ElfW(Addr) value = dynamic_value(dynamic, tag);
  return value == 0 ? nullptr : reinterpret_cast<const void*>(absolute(value, base));
}
template <typename T>
[[gnu::always_inline]] inline const T* table(const ElfW(Dyn) * dynamic, ElfW(Addr) base,
                                             ElfW(Sxword) tag) {
  return static_cast<const T*>(dynamic_address(dynamic, base, tag));
}

[[gnu::noinline]] inline Tables read_tables(const ElfW(Dyn) * dynamic, ElfW(Addr) base,
                                            const char* wanted = nullptr) {
  Tables found = {};
  found.base = base;
  found.wanted = wanted;
  for (const ElfW(Dyn)* entry = dynamic; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
    const ElfW(Addr) value = entry->d_un.d_val;
    if (value == 0) continue;
    const void* address = reinterpret_cast<const void*>(absolute(value, base));
    switch (entry->d_tag) {
      case DT_SYMTAB:
        found.symbols = static_cast<const ElfW(Sym)*>(address);
        break;
      case DT_STRTAB:
        found.strings = static_cast<const char*>(address);
        break;
      case DT_GNU_HASH:
        found.gnu_hash = static_cast<const uint32_t*>(address);
        break;
      case DT_HASH:
        found.sysv_hash = static_cast<const uint32_t*>(address);
        break;
      case DT_VERSYM:
        found.versions = static_cast<const ElfW(Half)*>(address);
        break;
      case DT_VERNEED:
        found.needed_versions = static_cast<const char*>(address);
        break;
      case DT_VERDEF:
        found.defined_versions = static_cast<const char*>(address);
        break;
      default:
        break;
    }
  }
  return found;
}

// Returns the name of an object's version `number` (2 and up), or null.
inline const char* version_name(const Tables& t, unsigned number) {
  for (const char* at = t.defined_versions; at != nullptr;) {
    const auto* version = reinterpret_cast<const ElfW(Verdef)*>(at);
    if (version->vd_ndx == number) {
      return t.strings + reinterpret_cast<const ElfW(Verdaux)*>(at + version->vd_aux)->vda_name;
    }
    at = version->vd_next != 0 ? at + version->vd_next : nullptr;
  }
  for (const char* at = t.needed_versions; at != nullptr;) {
    const auto* file = reinterpret_cast<const ElfW(Verneed)*>(at);
    const char* one = at + file->vn_aux;
    for (unsigned left = file->vn_cnt; left > 0; --left) {
      const auto* version = reinterpret_cast<const ElfW(Vernaux)*>(one);
      if (version->vna_other == number) return t.strings + version->vna_name;
      one += version->vna_next;
    }
    at = file->vn_next != 0 ? at + file->vn_next : nullptr;
  }
  return nullptr;
}

// Returns the symbol `index` if it is an acceptable plain definition of `name`, otherwise null.
// `second` receives a symbol that counts only if there is no other. If any version is acceptable,
// this is an old version of the name (the hidden bit). For an import without a version it is the
// default version, because ld.so prefers the oldest one (2).
[[gnu::noinline]] inline const ElfW(Sym) *
    match(const Tables& t, uint32_t index, const char* name, const ElfW(Sym) * *second) {
  const ElfW(Sym)* symbol = t.symbols + index;
  const unsigned type = symbol->st_info & 0xf;  // the same bits in both ELF classes
  const bool undefined = symbol->st_shndx == SHN_UNDEF && (!t.as_dlvsym || symbol->st_value == 0);
  if (undefined || symbol->st_shndx == SHN_ABS || type == STT_TLS || type == STT_GNU_IFUNC ||
      !same(t.strings + symbol->st_name, name)) {
    return nullptr;
  }
  if (t.versions == nullptr) return symbol;
  constexpr unsigned kHidden = 0x8000;
  const unsigned number = t.versions[index] & ~kHidden;
  const bool hidden = number != t.versions[index];
  if (t.wanted == nullptr ? !hidden : number < 2 && !t.as_dlvsym) return symbol;
  if (t.wanted != nullptr && *t.wanted != '\0') {
    const char* version = version_name(t, number);
    return version != nullptr && same(version, t.wanted) ? symbol : nullptr;
  }
  if (t.wanted != nullptr && number == 2) return symbol;
  if (*second == nullptr && (t.wanted == nullptr || !hidden)) *second = symbol;
  return nullptr;
}

// A GNU hash table has a header of four words, a Bloom filter, the buckets, and the chains.
inline const uint32_t* buckets_of(const uint32_t* gnu_hash) {
  return gnu_hash + 4 + gnu_hash[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
}

// False if the Bloom filter shows that the table has no name of this hash.
inline bool may_have(const uint32_t* gnu_hash, uint32_t hash) {
  constexpr unsigned kBits = 8 * sizeof(ElfW(Addr));
  const uint32_t bloom_words = gnu_hash[2];
  if (bloom_words == 0) return false;
  const auto* bloom = reinterpret_cast<const ElfW(Addr)*>(gnu_hash + 4);
  // The number of words is a power of 2.
  const ElfW(Addr) word = bloom[(hash / kBits) & (bloom_words - 1)];
  return ((word >> (hash % kBits)) & (word >> ((hash >> gnu_hash[3]) % kBits)) & 1U) != 0;
}

inline const ElfW(Sym) * by_gnu_hash(const Tables& t, const char* name, const ElfW(Sym) * *second) {
  const uint32_t bucket_count = t.gnu_hash[0];
  const uint32_t first_index = t.gnu_hash[1];
  uint32_t hash = 5381;
  for (const char* c = name; *c != '\0'; ++c) hash = hash * 33 + static_cast<unsigned char>(*c);
  if (bucket_count == 0 || !may_have(t.gnu_hash, hash)) return nullptr;

  const uint32_t* buckets = buckets_of(t.gnu_hash);
  const uint32_t* chain = buckets + bucket_count;
  uint32_t index = buckets[hash % bucket_count];
  if (index < first_index) return nullptr;  // an empty bucket holds 0
  for (;; ++index) {
    const uint32_t entry = chain[index - first_index];
    if ((entry | 1U) == (hash | 1U)) {
      if (const ElfW(Sym)* found = match(t, index, name, second)) return found;
    }
    if ((entry & 1U) != 0) return nullptr;  // the last one of its bucket
  }
}

// For objects without DT_GNU_HASH, which are small libraries and the vDSO: a linear search.
inline const ElfW(Sym) *
    by_sysv_hash(const Tables& t, const char* name, const ElfW(Sym) * *second) {
  for (uint32_t index = 1; index < t.sysv_hash[1]; ++index) {
    if (const ElfW(Sym)* found = match(t, index, name, second)) return found;
  }
  return nullptr;
}

[[gnu::noinline]] inline const ElfW(Sym) * find(const Tables& t, const char* name) {
  if (t.symbols == nullptr || t.strings == nullptr) return nullptr;
  const ElfW(Sym)* second = nullptr;
  const ElfW(Sym)* found = nullptr;
  if (t.gnu_hash != nullptr) {
    found = by_gnu_hash(t, name, &second);
  } else if (t.sysv_hash != nullptr) {
    found = by_sysv_hash(t, name, &second);
  }
  return found != nullptr ? found : second;
}

[[gnu::noinline]] inline const void* lookup(const Tables& t, const char* name) {
  const ElfW(Sym)* found = find(t, name);
  return found != nullptr ? reinterpret_cast<const void*>(t.base + found->st_value) : nullptr;
}

}  // namespace elf_detail

// Returns the address of the symbol `name` that the object with this dynamic section *defines*
// (functions and data; no TLS, no ifunc), or null. `base` is its load base (dlpi_addr, l_addr).
inline const void* elf_symbol(const ElfW(Dyn) * dynamic, ElfW(Addr) base, const char* name) {
  return elf_detail::lookup(elf_detail::read_tables(dynamic, base), name);
}

// Returns the definition to which ld.so would bind an import of `version` ("" for none), or null.
inline const void* elf_definition(const ElfW(Dyn) * dynamic, ElfW(Addr) base, const char* name,
                                  const char* version) {
  return elf_detail::lookup(elf_detail::read_tables(dynamic, base, version), name);
}

// Returns the definition that ld.so's dlvsym would take, or null.
inline const ElfW(Sym) * elf_versioned(const ElfW(Dyn) * dynamic, ElfW(Addr) base, const char* name,
                                       const char* version) {
  elf_detail::Tables tables = elf_detail::read_tables(dynamic, base, version);
  tables.as_dlvsym = true;
  return elf_detail::find(tables, name);
}

// Returns the object's DT_SONAME, or null if it has none.
[[gnu::noinline, gnu::hot]] inline const char* elf_soname(const ElfW(Dyn) * dynamic,
                                                          ElfW(Addr) base) {
  const ElfW(Addr) name = elf_detail::dynamic_value(dynamic, DT_SONAME);
  const char* strings = elf_detail::table<char>(dynamic, base, DT_STRTAB);
  return name != 0 && strings != nullptr ? strings + name : nullptr;
}

}  // namespace cudaguard

// SPDX-License-Identifier: Apache-2.0
#include "shim/guard/elf/own_symbols.h"

#include <sys/mman.h>

#include <cstring>

#include "shim/guard/elf/reference.h"
#include "shim/guard/elf/symbol_lookup.h"
#include "shim/guard/sys/memory.h"

// The linker's symbol for the start of this file in memory.
// NOLINTNEXTLINE(bugprone-reserved-identifier, readability-identifier-naming)
extern "C" const ElfW(Ehdr) __ehdr_start [[gnu::visibility("hidden")]];

namespace cudaguard {

ElfW(Addr) own_base() { return reinterpret_cast<ElfW(Addr)>(&__ehdr_start); }

namespace {

bool is_empty(const uint32_t* gnu_hash) {
  const uint32_t* bucket = elf_detail::buckets_of(gnu_hash);
  const uint32_t* end = bucket + gnu_hash[0];
  while (bucket < end && *bucket == 0) ++bucket;
  return bucket == end;
}

/// Returns one more than the number of the last symbol in the hash table.
uint32_t end_of_symbols(const uint32_t* gnu_hash) {
  const uint32_t buckets = gnu_hash[0];
  const uint32_t first = gnu_hash[1];
  const uint32_t* bucket = elf_detail::buckets_of(gnu_hash);
  const uint32_t* chain = bucket + buckets;
  uint32_t last = 0;
  for (uint32_t i = 0; i < buckets; ++i) {
    if (bucket[i] > last) last = bucket[i];
  }
  if (last < first) return first;
  while ((chain[last - first] & 1U) == 0) ++last;
  return last + 1;
}

/// True for this library's exports that the filter accepts.
struct OwnNames {
  elf_detail::Tables tables = elf_detail::read_tables(_DYNAMIC, own_base());
  NameFilter filter;
  const void* context;
  bool operator()(const char* name) const {
    return filter(name, context) && elf_detail::find(tables, name) != nullptr;
  }
};

/// False if the object has none of the names in its table of symbols, so that no relocation can
/// refer to one. Its imports come first in the table, and its exports are in the hash table.
bool may_refer(const elf_detail::Tables& object, const OwnNames& own) {
  // If an object exports nothing, its hash table does not show how many symbols it imports.
  if (object.gnu_hash == nullptr || is_empty(object.gnu_hash)) return true;
  for (uint32_t i = 1; i < object.gnu_hash[1]; ++i) {
    if (own(object.strings + object.symbols[i].st_name)) return true;
  }
  // An executable at a fixed address exports its imports, too: their PLT entries.
  elf_detail::Tables exports = object;
  exports.as_dlvsym = true;
  const uint32_t* gnu_hash = own.tables.gnu_hash;
  const uint32_t first = gnu_hash[1];
  const uint32_t* hashes = elf_detail::buckets_of(gnu_hash) + gnu_hash[0];
  const uint32_t end = end_of_symbols(gnu_hash);
  for (uint32_t i = first; i < end; ++i) {
    // The lowest bit of each of our own hashes marks the end of a chain.
    const uint32_t hash = hashes[i - first];
    if (!elf_detail::may_have(object.gnu_hash, hash) &&
        !elf_detail::may_have(object.gnu_hash, hash ^ 1U)) {
      continue;
    }
    const char* name = own.tables.strings + own.tables.symbols[i].st_name;
    if (own.filter(name, own.context) && elf_detail::find(exports, name) != nullptr) return true;
  }
  return false;
}

}  // namespace

bool hide_own_symbols(NameFilter filter, const void* context) {
  const elf_detail::Tables tables = elf_detail::read_tables(_DYNAMIC, own_base());
  if (tables.gnu_hash == nullptr || tables.symbols == nullptr) return false;
  const uint32_t first = tables.gnu_hash[1];  // imports come first
  const uint32_t end = end_of_symbols(tables.gnu_hash);
  const WritablePages pages(tables.symbols + first, (end - first) * sizeof *tables.symbols,
                            PROT_READ);
  if (!pages.ok()) return false;
  // A look-up in another thread reads the name, and then, if it is the right one, the value. So
  // only the name changes, by one store: it becomes the empty name at the start of the strings.
  for (uint32_t i = first; i < end; ++i) {
    if (!filter(tables.strings + tables.symbols[i].st_name, context)) continue;
    auto* name = const_cast<ElfW(Word)*>(&tables.symbols[i].st_name);
    __atomic_store_n(name, 0, __ATOMIC_RELAXED);
  }
  return true;
}

bool refers_to_own_symbols(const ElfW(Dyn) * dynamic, ElfW(Addr) base, NameFilter filter,
                           const void* context) {
  const OwnNames own = {.filter = filter, .context = context};
  const elf_detail::Tables object = elf_detail::read_tables(dynamic, base);
  if (object.symbols == nullptr || object.strings == nullptr || own.tables.gnu_hash == nullptr) {
    return false;
  }
  return may_refer(object, own) && find_reference(object, dynamic, base, own) != 0;
}

}  // namespace cudaguard

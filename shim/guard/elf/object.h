// SPDX-License-Identifier: Apache-2.0
// Facts about one loaded library. Only reads; takes no lock.
#pragma once

#include <link.h>

#include "shim/guard/elf/symbol_lookup.h"

namespace cudaguard {

// A range of addresses.
struct Extent {
  ElfW(Addr) from = 0;
  ElfW(Addr) to = 0;
  bool holds(const void* address) const {
    return reinterpret_cast<ElfW(Addr)>(address) - from < to - from;
  }
};

// Returns a range that holds all code of the library and no other library's: linkers put the code
// after the symbol table and before the dynamic section.
inline Extent code_of(const ElfW(Dyn) * dynamic, ElfW(Addr) base) {
  return {reinterpret_cast<ElfW(Addr)>(elf_detail::table<ElfW(Sym)>(dynamic, base, DT_SYMTAB)),
          reinterpret_cast<ElfW(Addr)>(dynamic)};
}

// Returns the first program header that `wanted` accepts, or null. The file must begin at its
// address 0, as every linker lays out a shared library.
template <typename Wanted>
    const ElfW(Phdr) * find_segment(const link_map& library, const Wanted& wanted) {
  const auto* file = reinterpret_cast<const ElfW(Ehdr)*>(library.l_addr);
  if (file == nullptr) return nullptr;
  const auto* segment = reinterpret_cast<const ElfW(Phdr)*>(library.l_addr + file->e_phoff);
  const auto* end = segment + file->e_phnum;
  while (segment != end && !wanted(*segment)) ++segment;
  return segment != end ? segment : nullptr;
}

// Returns the range that ld.so makes read-only after binding, empty if there is none.
inline Extent relro_of(const link_map& library) {
  const auto* relro = find_segment(
      library, [](const ElfW(Phdr) & segment) { return segment.p_type == PT_GNU_RELRO; });
  if (relro == nullptr) return {};
  const ElfW(Addr) from = library.l_addr + relro->p_vaddr;
  return {from, from + relro->p_memsz};
}

}  // namespace cudaguard

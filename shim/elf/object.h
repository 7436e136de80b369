// SPDX-License-Identifier: Apache-2.0
// Facts about one loaded library. Only reads; takes no lock.
#pragma once

#include <link.h>

#include "shim/elf/symbol_lookup.h"

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

// Returns the range that ld.so makes read-only after binding (PT_GNU_RELRO), empty if there is
// none. The file must begin at its address 0, as every linker lays out a shared library.
inline Extent relro_of(const link_map& library) {
  const auto* file = reinterpret_cast<const ElfW(Ehdr)*>(library.l_addr);
  if (file == nullptr) return {};
  const auto* segment = reinterpret_cast<const ElfW(Phdr)*>(library.l_addr + file->e_phoff);
  for (const auto* end = segment + file->e_phnum; segment != end; ++segment) {
    if (segment->p_type != PT_GNU_RELRO) continue;
    const ElfW(Addr) from = library.l_addr + segment->p_vaddr;
    return {from, from + segment->p_memsz};
  }
  return {};
}

}  // namespace cudaguard

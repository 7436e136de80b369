// SPDX-License-Identifier: Apache-2.0
// Finds the guard from inside another namespace (dlmopen), where ld.so does not bind to it. Only
// reads ld.so's list of the base namespace: no lock, no call but getauxval.
#pragma once

#include <elf.h>
#include <link.h>
#include <sys/auxv.h>

#include "shim/guard/elf/symbol_lookup.h"

namespace cudaguard {

// Returns the dynamic section that these program headers lead to, or null. `base` is 0 if it must
// be found by the headers' own entry.
inline const ElfW(Dyn) *
    dynamic_section(const ElfW(Phdr) * headers, unsigned long count, ElfW(Addr) base) {
  bool base_known = base != 0;
  const ElfW(Phdr)* dynamic_header = nullptr;
  for (unsigned long i = 0; i < count; ++i) {
    if (headers[i].p_type == PT_PHDR && !base_known) {
      base = reinterpret_cast<ElfW(Addr)>(headers) - headers[i].p_vaddr;
      base_known = true;
    } else if (headers[i].p_type == PT_DYNAMIC) {
      dynamic_header = &headers[i];
    }
  }
  if (!base_known || dynamic_header == nullptr) return nullptr;
  return reinterpret_cast<const ElfW(Dyn)*>(base + dynamic_header->p_vaddr);
}

// Returns what ld.so tells debuggers, or null. The program's own dynamic section leads to it,
// unless that section is read-only (lld -z rodynamic). ld.so itself defines it, too.
[[gnu::hot]] inline const r_debug* debugger_facts() {
  const auto* program = dynamic_section(reinterpret_cast<const ElfW(Phdr)*>(getauxval(AT_PHDR)),
                                        getauxval(AT_PHNUM), 0);
  const ElfW(Addr) facts = elf_detail::dynamic_value(program, DT_DEBUG);
  if (facts != 0) return reinterpret_cast<const r_debug*>(facts);
  const ElfW(Addr) loader = getauxval(AT_BASE);
  if (loader == 0) return nullptr;
  const auto* file = reinterpret_cast<const ElfW(Ehdr)*>(loader);
  const auto* headers = reinterpret_cast<const ElfW(Phdr)*>(loader + file->e_phoff);
  const auto* dynamic = dynamic_section(headers, file->e_phnum, loader);
  return static_cast<const r_debug*>(elf_symbol(dynamic, loader, "_r_debug"));
}

// Returns ld.so's list of the base namespace, or null. The guard is in that namespace even if this
// copy of the null driver is in another one.
inline const link_map* base_objects() {
  const r_debug* facts = debugger_facts();
  return facts != nullptr ? facts->r_map : nullptr;
}

// Returns an exported function of the guard that is preloaded into the program, or null.
inline const void* guards_symbol(const char* name) {
  constexpr int kMostObjects = 64;  // a preloaded library is among the first
  const link_map* object = base_objects();
  for (int i = 0; object != nullptr && i < kMostObjects; ++i, object = object->l_next) {
    const char* soname = elf_soname(object->l_ld, object->l_addr);
    if (soname == nullptr || !elf_detail::same(soname, "libcudaguard.so")) continue;
    return elf_symbol(object->l_ld, object->l_addr, name);
  }
  return nullptr;
}

}  // namespace cudaguard

// SPDX-License-Identifier: Apache-2.0
// Finds the guard from inside another namespace (dlmopen), where ld.so does not bind to it. Only
// reads ld.so's list of the base namespace: no lock, no call but getauxval.
#pragma once

#include <elf.h>
#include <link.h>
#include <sys/auxv.h>

#include "shim/elf/symbol_lookup.h"

namespace cudaguard {

// Returns ld.so's list of the base namespace, or null. The program's own dynamic section holds this
// list. The guard is in that namespace even if this copy of the null driver is in another one.
inline const link_map* base_objects() {
  const auto* headers = reinterpret_cast<const ElfW(Phdr)*>(getauxval(AT_PHDR));
  const auto count = getauxval(AT_PHNUM);
  if (headers == nullptr) return nullptr;
  ElfW(Addr) base = 0;
  bool base_known = false;
  const ElfW(Phdr)* dynamic_header = nullptr;
  for (unsigned long i = 0; i < count; ++i) {
    if (headers[i].p_type == PT_PHDR) {
      base = reinterpret_cast<ElfW(Addr)>(headers) - headers[i].p_vaddr;
      base_known = true;
    } else if (headers[i].p_type == PT_DYNAMIC) {
      dynamic_header = &headers[i];
    }
  }
  if (!base_known || dynamic_header == nullptr) return nullptr;
  const auto* entry = reinterpret_cast<const ElfW(Dyn)*>(base + dynamic_header->p_vaddr);
  for (; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_DEBUG && entry->d_un.d_ptr != 0) {
      return reinterpret_cast<const r_debug*>(entry->d_un.d_ptr)->r_map;
    }
  }
  return nullptr;
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

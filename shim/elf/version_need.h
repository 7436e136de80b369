// SPDX-License-Identifier: Apache-2.0
// Which file an object expects an imported symbol from: the name beside the symbol's version
// (DT_VERNEED's vn_file, a DT_SONAME such as "libcudart.so.13"). Pure reading of mapped tables.
#pragma once

#include <link.h>

#include "shim/elf/symbol_lookup.h"

namespace cudaguard {

// Null if the object does not import the symbol, or without a version.
inline const char* imported_from(const ElfW(Dyn) * dynamic, ElfW(Addr) base, const char* name) {
  const elf_detail::Tables t = elf_detail::read_tables(dynamic, base);
  if (t.symbols == nullptr || t.strings == nullptr || t.versions == nullptr) return nullptr;
  const char* need = nullptr;
  for (const ElfW(Dyn)* entry = dynamic; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_VERNEED) {
      need = reinterpret_cast<const char*>(elf_detail::absolute(entry->d_un.d_ptr, base));
    }
  }
  if (need == nullptr) return nullptr;
  // Imports come before what is hashed; DT_HASH counts all.
  uint32_t count = 0;
  if (t.gnu_hash != nullptr) {
    count = t.gnu_hash[1];
  } else if (t.sysv_hash != nullptr) {
    count = t.sysv_hash[1];
  }
  for (uint32_t i = 1; i < count; ++i) {
    const ElfW(Sym)& symbol = t.symbols[i];
    if (symbol.st_shndx != SHN_UNDEF || !elf_detail::same(t.strings + symbol.st_name, name)) {
      continue;
    }
    const unsigned wanted = t.versions[i] & 0x7fffU;
    for (const char* at = need;;) {
      const auto* file = reinterpret_cast<const ElfW(Verneed)*>(at);
      const char* aux_at = at + file->vn_aux;
      for (unsigned left = file->vn_cnt; left > 0; --left) {
        const auto* aux = reinterpret_cast<const ElfW(Vernaux)*>(aux_at);
        if (aux->vna_other == wanted) return t.strings + file->vn_file;
        aux_at += aux->vna_next;
      }
      if (file->vn_next == 0) break;
      at += file->vn_next;
    }
    return nullptr;
  }
  return nullptr;
}

}  // namespace cudaguard

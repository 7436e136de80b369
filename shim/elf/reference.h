// SPDX-License-Identifier: Apache-2.0
// The version with which an object refers to a symbol. Pure reading of mapped tables.
#pragma once

#include <link.h>

#include "shim/elf/symbol_lookup.h"

namespace cudaguard {

// Found by its relocations, as ld.so does: where an object exports nothing, its hash table does not
// say how many symbols it imports. "" without a version; null if it does not refer to it.
[[gnu::noinline]] inline const char* version_of_reference(const ElfW(Dyn) * dynamic,
                                                          ElfW(Addr) base, const char* name) {
  const elf_detail::Tables t = elf_detail::read_tables(dynamic, base);
  if (t.symbols == nullptr || t.strings == nullptr) return nullptr;
  constexpr ElfW(Sxword) kTables[][2] = {{DT_JMPREL, DT_PLTRELSZ}, {DT_RELA, DT_RELASZ}};
  for (const auto& [table, bytes] : kTables) {
    const auto* it = elf_detail::table<ElfW(Rela)>(dynamic, base, table);
    const auto* end = it + elf_detail::dynamic_value(dynamic, bytes) / sizeof *it;
    for (; it != end; ++it) {
      const uint32_t index = ELF64_R_SYM(it->r_info);
      if (index == 0 || !elf_detail::same(t.strings + t.symbols[index].st_name, name)) continue;
      const unsigned number = t.versions != nullptr ? t.versions[index] & 0x7fffU : 0;
      return number < 2 ? "" : elf_detail::version_name(t, number);
    }
  }
  return nullptr;
}

}  // namespace cudaguard

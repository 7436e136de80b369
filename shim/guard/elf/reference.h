// SPDX-License-Identifier: Apache-2.0
// Finds the version with which an object refers to a symbol. Only reads mapped tables.
#pragma once

#include <link.h>

#include "shim/guard/elf/symbol_lookup.h"

namespace cudaguard {

// Returns the number of the first symbol that the object refers to and whose name `wanted` accepts,
// 0 if there is none. Searches the relocations, as ld.so does: if an object exports nothing, its
// hash table does not show how many symbols it imports.
template <typename Wanted>
uint32_t find_reference(const elf_detail::Tables& t, const ElfW(Dyn) * dynamic, ElfW(Addr) base,
                        const Wanted& wanted) {
  if (t.symbols == nullptr || t.strings == nullptr) return 0;
  // Relocations without a symbol come first; there may be hundreds of thousands of them.
  constexpr ElfW(Sxword)
      kTables[][3] = {{DT_JMPREL, DT_PLTRELSZ, DT_NULL}, {DT_RELA, DT_RELASZ, DT_RELACOUNT}};
  for (const auto& [table, bytes, without] : kTables) {
    const auto* relocation = elf_detail::table<ElfW(Rela)>(dynamic, base, table);
    const auto* end = relocation + elf_detail::dynamic_value(dynamic, bytes) / sizeof *relocation;
    for (relocation += elf_detail::dynamic_value(dynamic, without); relocation < end;
         ++relocation) {
      const auto index = static_cast<uint32_t>(ELF64_R_SYM(relocation->r_info));
      if (index != 0 && wanted(t.strings + t.symbols[index].st_name)) return index;
    }
  }
  return 0;
}

// Returns the version of the object's reference to `name`: "" without a version, null without a
// reference.
[[gnu::noinline]] inline const char* version_of_reference(const ElfW(Dyn) * dynamic,
                                                          ElfW(Addr) base, const char* name) {
  const elf_detail::Tables t = elf_detail::read_tables(dynamic, base);
  const uint32_t index = find_reference(
      t, dynamic, base, [name](const char* other) { return elf_detail::same(other, name); });
  if (index == 0) return nullptr;
  const unsigned number = t.versions != nullptr ? t.versions[index] & 0x7fffU : 0;
  return number < 2 ? "" : elf_detail::version_name(t, number);
}

}  // namespace cudaguard

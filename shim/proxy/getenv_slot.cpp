// SPDX-License-Identifier: Apache-2.0
#include "shim/proxy/getenv_slot.h"

#include <elf.h>

#include "policy/text.h"
#include "shim/guard/elf/object.h"
#include "shim/guard/elf/own_maps.h"
#include "shim/guard/elf/symbol_lookup.h"
#include "shim/guard/sys/memory.h"

namespace cudaguard {

namespace {

#if defined(__x86_64__)
constexpr unsigned kJumpSlot = R_X86_64_JUMP_SLOT;
constexpr unsigned kGlobalData = R_X86_64_GLOB_DAT;
constexpr unsigned kAbsolute = R_X86_64_64;
#elif defined(__aarch64__)
constexpr unsigned kJumpSlot = R_AARCH64_JUMP_SLOT;
constexpr unsigned kGlobalData = R_AARCH64_GLOB_DAT;
constexpr unsigned kAbsolute = R_AARCH64_ABS64;
#else
#error "cudaguard knows x86-64 and AArch64"
#endif

struct Relocations {
  const ElfW(Rela) * first = nullptr;
  size_t bytes = 0;
};

struct Driver {
  ElfW(Addr) base = 0;
  elf_detail::Tables tables;
  Relocations plt;    // DT_JMPREL
  Relocations other;  // DT_RELA
  Extent relro;
};

Driver read(const link_map& map) {
  Driver library;
  library.base = map.l_addr;
  library.tables = elf_detail::read_tables(map.l_ld, map.l_addr);
  for (const ElfW(Dyn)* entry = map.l_ld; entry->d_tag != DT_NULL; ++entry) {
    const auto at =
        reinterpret_cast<const ElfW(Rela)*>(elf_detail::absolute(entry->d_un.d_ptr, map.l_addr));
    if (entry->d_tag == DT_JMPREL) library.plt.first = at;
    if (entry->d_tag == DT_PLTRELSZ) library.plt.bytes = entry->d_un.d_val;
    if (entry->d_tag == DT_RELA) library.other.first = at;
    if (entry->d_tag == DT_RELASZ) library.other.bytes = entry->d_un.d_val;
  }
  library.relro = relro_of(map);
  return library;
}

/// True if ld.so made the slot read-only after binding it (full RELRO).
bool is_read_only(const Driver& library, ElfW(Addr) slot) {
  // ld.so protects whole pages, and rounds both ends of the segment down.
  const ElfW(Addr) inside = getauxval(AT_PAGESZ) - 1;
  const ElfW(Addr) from = library.relro.from & ~inside;
  const ElfW(Addr) to = library.relro.to & ~inside;
  return slot >= from && slot < to;
}

bool leads_to_proxy(const void* target) {
  char path[512];
  const std::string_view file = place_of(target, path, sizeof path).module;
  return base_name(file) == "libcudaguard-driver.so";
}

int redirect_in(const Driver& library, const Relocations& table, Getenv to) {
  int redirected = 0;
  for (size_t i = 0; i < table.bytes / sizeof(ElfW(Rela)); ++i) {
    const ElfW(Rela)& entry = table.first[i];
    const unsigned type = ELF64_R_TYPE(entry.r_info);
    if (type != kJumpSlot && type != kGlobalData && type != kAbsolute) continue;
    const ElfW(Sym)& symbol = library.tables.symbols[ELF64_R_SYM(entry.r_info)];
    if (!elf_detail::same(library.tables.strings + symbol.st_name, "getenv")) continue;
    const ElfW(Addr) slot = library.base + entry.r_offset;
    ++redirected;
    // If a second copy of the guard has its own proxies, the first copy keeps the slot.
    if (leads_to_proxy(*reinterpret_cast<const void* const*>(slot))) continue;
    if (is_read_only(library, slot)) {
      if (!overwrite(reinterpret_cast<const void*>(slot), &to, sizeof to, PROT_READ)) return -1;
    } else {
      // One atomic store of a word, because other threads may call through the slot meanwhile.
      __atomic_store_n(reinterpret_cast<Getenv*>(slot), to, __ATOMIC_RELEASE);
    }
  }
  return redirected;
}

}  // namespace

bool redirect_getenv(const link_map& library, Getenv to) {
  const Driver read_library = read(library);
  if (read_library.tables.symbols == nullptr) return false;
  const int in_plt = redirect_in(read_library, read_library.plt, to);
  const int elsewhere = redirect_in(read_library, read_library.other, to);
  return in_plt >= 0 && elsewhere >= 0 && in_plt + elsewhere > 0;
}

}  // namespace cudaguard

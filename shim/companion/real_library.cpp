// SPDX-License-Identifier: Apache-2.0
#include "shim/companion/real_library.h"

#include <dlfcn.h>

#include <cerrno>

#include "shim/sys/memory.h"

// The linker's name for the beginning of this file in memory.
// NOLINTNEXTLINE(bugprone-reserved-identifier, readability-identifier-naming)
extern "C" const ElfW(Ehdr) __ehdr_start [[gnu::visibility("hidden")]];

namespace cudaguard {

RealLibrary open_real(const Loader& the, const char* soname, int mode) {
  if (the.dlopen == nullptr) return {};
  const int saved_errno = errno;
  void* volatile handle = the.dlopen(soname, RTLD_LAZY | mode);  // no tail call: we are the caller
  if (handle == nullptr && the.dlerror != nullptr) the.dlerror();
  errno = saved_errno;
  return RealLibrary(static_cast<const link_map*>(handle));
}

bool hide_own_symbol(const char* name) {
  const auto base = reinterpret_cast<ElfW(Addr)>(&__ehdr_start);
  const elf_detail::Tables tables = elf_detail::read_tables(_DYNAMIC, base);
  const auto* address = static_cast<const char*>(elf_symbol(_DYNAMIC, base, name));
  if (address == nullptr || tables.gnu_hash == nullptr || tables.symbols == nullptr) return false;
  // Imports come before what is hashed, ours after: by their number in the table.
  for (uint32_t i = tables.gnu_hash[1];; ++i) {
    const ElfW(Sym)& symbol = tables.symbols[i];
    if (!elf_detail::same(tables.strings + symbol.st_name, name)) continue;
    ElfW(Sym) hidden = symbol;
    hidden.st_shndx = SHN_UNDEF;
    hidden.st_value = 0;
    // The companions are linked with -z separate-code: the table lies apart from the code.
    return overwrite(&symbol, &hidden, sizeof hidden, PROT_READ);
  }
}

}  // namespace cudaguard

// SPDX-License-Identifier: Apache-2.0
// Compares the symbol table reader with the loader's own answers for every library of this process.
#include "shim/guard/elf/symbol_lookup.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <link.h>

#include <cstring>

namespace cudaguard {
namespace {

const link_map* find(const char* part) {
  const link_map* map = nullptr;
  for (map = _r_debug.r_map; map != nullptr; map = map->l_next) {
    if (strstr(map->l_name, part) != nullptr) break;
  }
  return map;
}

TEST(SymbolLookup, LibcsFunctions_AreFoundAsByDlsym) {
  const link_map* libc = find("libc.so");
  ASSERT_NE(libc, nullptr);
  void* handle = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  ASSERT_NE(handle, nullptr);
  for (const char* name : {"dl_iterate_phdr", "printf", "getpid", "environ", "qsort", "fork"}) {
    EXPECT_EQ(elf_symbol(libc->l_ld, libc->l_addr, name), dlsym(handle, name)) << name;
  }
  EXPECT_EQ(elf_symbol(libc->l_ld, libc->l_addr, "no_such_function_anywhere"), nullptr);
  EXPECT_EQ(elf_symbol(libc->l_ld, libc->l_addr, ""), nullptr);
  dlclose(handle);
}

TEST(SymbolLookup, VersionedDefinition_IsFoundAsByDlvsym) {
  const link_map* libc = find("libc.so");
  ASSERT_NE(libc, nullptr);
  void* handle = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  ASSERT_NE(handle, nullptr);
  for (const char* version : {"GLIBC_2.2.5", "GLIBC_2.3", "GLIBC_2.17", "GLIBC_2.3.4", "CG_1"}) {
    const auto* found = elf_versioned(libc->l_ld, libc->l_addr, "realpath", version);
    const void* address =
        found == nullptr ? nullptr : reinterpret_cast<const void*>(libc->l_addr + found->st_value);
    EXPECT_EQ(address, dlvsym(handle, "realpath", version)) << version;
  }
  dlclose(handle);
}

/// gVisor's, and Linux's before 3.16. No loader relocates its dynamic section.
TEST(SymbolLookup, VdsoThatIsLinkedAtAKernelsAddress_IsRead) {
  constexpr ElfW(Addr) kLinkedAt = 0xffffffffff700000;
  const char strings[] = "\0linux-vdso.so.1";
  const ElfW(Addr) base = reinterpret_cast<ElfW(Addr)>(strings) - kLinkedAt;
  const ElfW(Dyn) dynamic[] = {{DT_SONAME, {1}}, {DT_STRTAB, {kLinkedAt}}, {DT_NULL, {0}}};
  EXPECT_EQ(elf_soname(dynamic, base), strings + 1);
}

TEST(SymbolLookup, Import_IsNotADefinition) {
  const link_map* self = _r_debug.r_map;  // this program imports dlopen
  EXPECT_EQ(elf_symbol(self->l_ld, self->l_addr, "dlopen"), nullptr);
}

TEST(SymbolLookup, BloomFilterWithoutWords_AcceptsNoName) {
  const uint32_t empty[] = {1, 1, 0, 0, 0};
  EXPECT_FALSE(elf_detail::may_have(empty, 5381));
}

}  // namespace
}  // namespace cudaguard

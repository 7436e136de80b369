// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/elf/elf_symbols.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "policy/text.h"

namespace cudaguard::launcher {

namespace {

/// libtorch_cuda.so has 20 MB of strings.
constexpr uint64_t kMostStrings = uint64_t{256} << 20;
/// Such symbols need 200 MB. Chromium has 2 million relocations.
constexpr uint64_t kMostEntries = uint64_t{8} << 20;
/// A linker makes two tables.
constexpr size_t kMostRelocationTables = 8;

struct Tables {
  Elf64_Shdr symbols = {};
  std::vector<Elf64_Shdr> relocations;
  std::string strings;
};

/// Uses the section headers, which strip keeps for these tables. Returns false if they are damaged.
/// A file without dynamic symbols has an empty `symbols`.
bool find_tables(const Bytes& file, Tables& tables) {
  const ElfFacts facts = read_elf(file);
  if (!facts.is_elf || !facts.damage.empty()) return false;
  if (facts.type == 0) return true;  // of another ELF class
  Elf64_Ehdr elf = {};
  if (!file.read(0, &elf, sizeof elf)) return false;
  const std::vector<Elf64_Shdr> sections = read_sections(file, elf);
  if (sections.empty()) return elf.e_shnum == 0 || elf.e_shentsize != sizeof(Elf64_Shdr);
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type == SHT_DYNSYM) tables.symbols = section;
  }
  if (tables.symbols.sh_size == 0) return true;
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_RELA || (section.sh_flags & SHF_ALLOC) == 0) continue;
    if (tables.relocations.size() < kMostRelocationTables) tables.relocations.push_back(section);
  }
  if (tables.symbols.sh_link >= sections.size()) return false;
  const Elf64_Shdr& strings = sections[tables.symbols.sh_link];
  if (strings.sh_size > std::min(file.size(), kMostStrings)) return false;
  tables.strings.resize(static_cast<size_t>(strings.sh_size));
  return file.read(strings.sh_offset, tables.strings.data(), tables.strings.size());
}

/// Like for_each_entry() of elf_file.h.
template <typename Entry, typename Use>
bool for_each(const Bytes& file, const Elf64_Shdr& table, Use use) {
  const uint64_t count = std::min<uint64_t>(table.sh_size / sizeof(Entry), kMostEntries);
  return for_each_entry<Entry>(file, table.sh_offset, count, use);
}

/// Returns false if the name is not in the table of strings. A very long name is omitted, because
/// no caller needs it.
bool add_name(const Tables& tables, const Elf64_Sym& symbol, std::set<std::string>& names) {
  const std::string_view rest = tail(tables.strings, symbol.st_name);
  const size_t end = head(rest, kLongestName + 1).find('\0');
  if (end == std::string_view::npos) return rest.size() > kLongestName;
  if (end != 0) names.emplace(head(rest, end));
  return true;
}

/// Excludes the names of versions, which are absolute symbols.
bool is_export(const Elf64_Sym& symbol) {
  const unsigned char binding = ELF64_ST_BIND(symbol.st_info);
  const unsigned char visibility = ELF64_ST_VISIBILITY(symbol.st_other);
  return symbol.st_shndx != SHN_UNDEF && symbol.st_shndx != SHN_ABS &&
         (binding == STB_GLOBAL || binding == STB_WEAK || binding == STB_GNU_UNIQUE) &&
         (visibility == STV_DEFAULT || visibility == STV_PROTECTED);
}

bool is_variable(const Elf64_Sym& symbol) {
  const unsigned char type = ELF64_ST_TYPE(symbol.st_info);
  return type == STT_OBJECT || type == STT_COMMON || type == STT_TLS;
}

bool is_copy(const Elf64_Rela& relocation) {
#if defined(__x86_64__)
  return ELF64_R_TYPE(relocation.r_info) == R_X86_64_COPY;
#elif defined(__aarch64__)
  return ELF64_R_TYPE(relocation.r_info) == R_AARCH64_COPY;
#endif
}

}  // namespace

bool read_exports(const Bytes& file, std::set<std::string>& names, Exports which) {
  Tables tables;
  if (!find_tables(file, tables)) return false;
  bool sound = true;
  const auto take = [&](const Elf64_Sym& symbol) {
    if (!is_export(symbol) || (which == Exports::kVariables && !is_variable(symbol))) return;
    if (!add_name(tables, symbol, names)) sound = false;
  };
  return for_each<Elf64_Sym>(file, tables.symbols, take) && sound;
}

bool read_references(const Bytes& file, std::set<std::string>& names, References which) {
  Tables tables;
  if (!find_tables(file, tables)) return false;
  bool sound = true;
  std::set<uint64_t> wanted;
  const auto note = [&](const Elf64_Rela& relocation) {
    if (which == References::kAll || is_copy(relocation)) {
      wanted.insert(ELF64_R_SYM(relocation.r_info));
    }
  };
  for (const Elf64_Shdr& table : tables.relocations) {
    if (!for_each<Elf64_Rela>(file, table, note)) sound = false;
  }
  uint64_t index = 0;
  const auto take = [&](const Elf64_Sym& symbol) {
    if (wanted.contains(index++) && !add_name(tables, symbol, names)) sound = false;
  };
  return for_each<Elf64_Sym>(file, tables.symbols, take) && sound;
}

}  // namespace cudaguard::launcher

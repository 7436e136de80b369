// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/elf/elf_symbols.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "policy/text.h"

namespace cudaguard::launcher {

namespace {

/// libtorch_cuda.so has 20 MB of strings.
constexpr uint64_t kMostStrings = uint64_t{256} << 20;
/// Such symbols need 200 MB. Chromium has 2 million relocations.
constexpr uint64_t kMostEntries = uint64_t{8} << 20;
/// A linker makes two tables.
constexpr size_t kMostRelocationTables = 8;
/// Each needs 16 bytes. libtorch_cuda.so has 0.3 million, a Chromium with debug symbols 2.
constexpr size_t kMostFunctions = size_t{4} << 20;

using Sections = std::vector<Elf64_Shdr>;

/// Calls `use` with each entry of the table, reading one piece of it at a time. Returns false if
/// the file does not have all entries.
template <typename Entry, typename Use>
bool for_each(const Bytes& file, const Elf64_Shdr& table, Use use) {
  constexpr size_t kPiece = (size_t{1} << 16) / sizeof(Entry);
  std::vector<Entry> piece;
  uint64_t at = table.sh_offset;
  uint64_t left = std::min<uint64_t>(table.sh_size / sizeof(Entry), kMostEntries);
  for (; left > 0; left -= piece.size()) {
    piece.resize(static_cast<size_t>(std::min<uint64_t>(left, kPiece)));
    const size_t size = piece.size() * sizeof(Entry);
    if (!file.read(at, piece.data(), size)) return false;
    for (const Entry& entry : piece) use(entry);
    at += size;
  }
  return true;
}

/// Uses the section headers, which strip keeps for the tables of symbols. Returns false if they are
/// damaged. A file without section headers, or of another ELF class, has empty `sections`.
bool read_sections(const Bytes& file, const ElfFacts& facts, Elf64_Ehdr& elf, Sections& sections) {
  if (facts.type == 0) return facts.is_elf && facts.damage.empty();
  if (!file.read(0, &elf, sizeof elf)) return false;
  sections.resize(elf.e_shentsize == sizeof(Elf64_Shdr) ? elf.e_shnum : 0);
  if (sections.empty()) return true;
  if (file.read(elf.e_shoff, sections.data(), sections.size() * sizeof(Elf64_Shdr))) return true;
  sections.clear();
  return false;
}

/// The tables of dynamic symbols.
struct Tables {
  Elf64_Shdr symbols = {};
  std::vector<Elf64_Shdr> relocations;
  std::string strings;
};

/// Returns false if the tables are damaged. A file without dynamic symbols has an empty `symbols`.
bool find_tables(const Bytes& file, Tables& tables) {
  const ElfFacts facts = read_elf(file);
  Elf64_Ehdr elf = {};
  Sections sections;
  if (!facts.damage.empty() || !read_sections(file, facts, elf, sections)) return false;
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

/// A name that is not in the table of strings is damage. A very long name is omitted, because no
/// caller needs it.
void add_name(const Tables& tables, const Elf64_Sym& symbol, Names& found) {
  const std::string_view rest = tail(tables.strings, symbol.st_name);
  const size_t end = head(rest, kLongestName + 1).find('\0');
  if (end == std::string_view::npos) {
    found.damaged = found.damaged || rest.size() <= kLongestName;
  } else if (end != 0) {
    found.names.emplace(head(rest, end));
  }
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

/// DT_GNU_HASH's table: this header, a Bloom filter of 64-bit words, buckets, and chains.
struct GnuHash {
  uint32_t buckets;
  uint32_t first;  ///< number of the first symbol in a chain
  uint32_t words;  ///< of the filter
  uint32_t shift;
};

/// False if the table at `at` does not have a name of that hash.
bool may_have(const Bytes& file, uint64_t at, const GnuHash& table, uint32_t hash) {
  const uint64_t filter = at + sizeof table;
  uint64_t word = 0;
  if (!file.read(filter + hash / 64 % table.words * sizeof word, &word, sizeof word)) return true;
  if ((word >> (hash % 64) & word >> ((hash >> table.shift) % 64) & 1U) == 0) return false;
  const uint64_t buckets = filter + uint64_t{table.words} * sizeof word;
  uint32_t index = 0;
  if (!file.read(buckets + hash % table.buckets * sizeof index, &index, sizeof index)) return true;
  if (index < table.first) return false;  // an empty bucket holds 0
  const uint64_t chains = buckets + uint64_t{table.buckets} * sizeof index;
  for (uint64_t i = index - table.first; i < kMostEntries; ++i) {
    uint32_t entry = 0;
    if (!file.read(chains + i * sizeof entry, &entry, sizeof entry)) return true;
    if ((entry | 1U) == (hash | 1U)) return true;
    if ((entry & 1U) != 0) return false;  // the last one of its bucket
  }
  return true;
}

bool is_copy(const Elf64_Rela& relocation) {
#if defined(__x86_64__)
  return ELF64_R_TYPE(relocation.r_info) == R_X86_64_COPY;
#elif defined(__aarch64__)
  return ELF64_R_TYPE(relocation.r_info) == R_AARCH64_COPY;
#endif
}

bool is_function(const Elf64_Sym& symbol) {
  const unsigned char type = ELF64_ST_TYPE(symbol.st_info);
  return (type == STT_FUNC || type == STT_GNU_IFUNC) && symbol.st_shndx != SHN_UNDEF;
}

}  // namespace

Names read_exports(const Bytes& file, Exports which) {
  Names found;
  Tables tables;
  if (!find_tables(file, tables)) return {{}, true};
  const bool whole = for_each<Elf64_Sym>(file, tables.symbols, [&](const Elf64_Sym& symbol) {
    if (!is_export(symbol) || (which == Exports::kVariables && !is_variable(symbol))) return;
    add_name(tables, symbol, found);
  });
  found.damaged = found.damaged || !whole;
  return found;
}

std::vector<uint32_t> gnu_hashes(const std::set<std::string>& names) {
  std::vector<uint32_t> hashes;
  for (const std::string& name : names) {
    uint32_t hash = 5381;
    for (const char c : name) hash = hash * 33 + static_cast<unsigned char>(c);
    hashes.push_back(hash);
  }
  return hashes;
}

bool may_export(const Bytes& file, const ElfFacts& facts, const std::vector<uint32_t>& hashes) {
  GnuHash table = {};
  if (facts.gnu_hash == 0 || !file.read(facts.gnu_hash, &table, sizeof table)) return true;
  if (table.buckets == 0 || table.words == 0 || table.shift >= 32) return true;
  return std::ranges::any_of(
      hashes, [&](uint32_t hash) { return may_have(file, facts.gnu_hash, table, hash); });
}

Names read_references(const Bytes& file, References which) {
  Names found;
  Tables tables;
  if (!find_tables(file, tables)) return {{}, true};
  bool whole = true;
  std::set<uint64_t> wanted;
  for (const Elf64_Shdr& table : tables.relocations) {
    whole &= for_each<Elf64_Rela>(file, table, [&](const Elf64_Rela& relocation) {
      if (which == References::kCopies && !is_copy(relocation)) return;
      wanted.insert(ELF64_R_SYM(relocation.r_info));
    });
  }
  uint64_t index = 0;
  whole &= for_each<Elf64_Sym>(file, tables.symbols, [&](const Elf64_Sym& symbol) {
    if (wanted.contains(index++)) add_name(tables, symbol, found);
  });
  found.damaged = found.damaged || !whole;
  return found;
}

ElfFunctions::ElfFunctions(const Bytes& file) {
  const ElfFacts facts = read_elf(file);
  Elf64_Ehdr elf = {};
  Sections sections;
  loads_ = facts.loads;
  if (!read_sections(file, facts, elf, sections)) return;
  has_lines_ = elf.e_shstrndx < sections.size() &&
               std::ranges::any_of(sections, [&](const Elf64_Shdr& section) {
                 const Elf64_Shdr& names = sections[elf.e_shstrndx];
                 std::string name;
                 return section.sh_type == SHT_PROGBITS && section.sh_name < names.sh_size &&
                        read_string(file, names.sh_offset + section.sh_name, file.size(), name) &&
                        name == ".debug_line";
               });
  if (!read_table(file, sections, SHT_SYMTAB)) read_table(file, sections, SHT_DYNSYM);
}

bool ElfFunctions::read_table(const Bytes& file, const Sections& sections, uint32_t type) {
  const auto table = std::ranges::find_if(sections, [&](const Elf64_Shdr& section) {
    return section.sh_type == type && section.sh_link < sections.size();
  });
  if (table == sections.end()) return false;
  names_ = sections[table->sh_link].sh_offset;
  for_each<Elf64_Sym>(file, *table, [&](const Elf64_Sym& symbol) {
    if (!is_function(symbol) || functions_.size() == kMostFunctions) return;
    const auto size = static_cast<uint32_t>(std::min<uint64_t>(symbol.st_size, UINT32_MAX));
    functions_.push_back({symbol.st_value, size, symbol.st_name});
  });
  std::ranges::sort(functions_, {},
                    [](const Function& one) { return std::pair(one.start, one.size); });
  return !functions_.empty();
}

uint64_t ElfFunctions::address_of(uint64_t offset) const {
  const auto load = std::ranges::find_if(loads_, [&](const Elf64_Phdr& header) {
    return offset >= header.p_offset && offset - header.p_offset < header.p_filesz;
  });
  return load == loads_.end() ? 0 : offset - load->p_offset + load->p_vaddr;
}

std::string ElfFunctions::name_at(const Bytes& file, uint64_t offset) const {
  const uint64_t address = address_of(offset);
  if (address == 0) return {};
  const auto after = std::ranges::upper_bound(functions_, address, {}, &Function::start);
  if (after == functions_.begin()) return {};
  const Function& function = *(after - 1);
  if (function.size != 0 && address - function.start >= function.size) return {};
  const uint64_t at = names_ + function.name;
  std::string name;
  if (at >= names_) read_string(file, at, file.size(), name);
  return name;
}

}  // namespace cudaguard::launcher

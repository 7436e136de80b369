// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/elf/elf_symbols.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "shim/launcher/elf/elf_layout.h"

namespace cudaguard::launcher {

namespace {

/// As much of a table as is read at a time.
constexpr size_t kPiece = size_t{1} << 16;
constexpr size_t kLongestName = 4096;
/// libtorch_cuda.so's is 20 MB.
constexpr uint64_t kMostStrings = uint64_t{256} << 20;

/// A table that is loaded: its place in the file, and as much as there can be of it.
struct Range {
  uint64_t at = 0;
  uint64_t size = 0;
};

struct Tables {
  Range symbols;
  Range hash;
  Range gnu_hash;
  std::string strings;
};

/// A table's start; its size is the rest of the segment, or `size` where that is smaller.
bool find_range(const Layout& layout, uint64_t address, uint64_t size, Range& range) {
  uint64_t end = 0;
  if (!file_offset(layout, address, range.at, end)) return false;
  range.size = std::min(size, end - range.at);
  return true;
}

/// False: damaged. A file without dynamic symbols has an empty `symbols`.
bool find_tables(const Bytes& file, Tables& tables) {
  const ElfFacts facts = read_elf(file);
  Elf64_Ehdr elf = {};
  if (!facts.is_elf || !facts.damage.empty()) return false;
  if (facts.type == 0) return true;  // of another class
  Layout layout;
  std::vector<Elf64_Dyn> entries;
  if (!file.read(0, &elf, sizeof elf) || !read_layout(file, elf, layout).empty() ||
      !read_dynamic_entries(file, layout, entries)) {
    return false;
  }
  const auto value_of = [&](int64_t tag) -> uint64_t {
    for (const Elf64_Dyn& entry : entries) {
      if (entry.d_tag == tag) return entry.d_un.d_val;
    }
    return 0;
  };
  if (value_of(DT_SYMTAB) == 0) return true;
  Range strings;
  if (!find_range(layout, value_of(DT_SYMTAB), UINT64_MAX, tables.symbols) ||
      !find_range(layout, value_of(DT_STRTAB), value_of(DT_STRSZ), strings)) {
    return false;
  }
  if (strings.size > kMostStrings) return false;
  tables.strings.resize(static_cast<size_t>(strings.size));
  if (!file.read(strings.at, tables.strings.data(), tables.strings.size())) return false;
  const auto optional = [&](int64_t tag, Range& range) {
    const uint64_t address = value_of(tag);
    return address == 0 || find_range(layout, address, UINT64_MAX, range);
  };
  return optional(DT_HASH, tables.hash) && optional(DT_GNU_HASH, tables.gnu_hash);
}

/// Calls `use` with every entry of a table; it returns false to stop.
template <typename Entry, typename Use>
bool for_each(const Bytes& file, uint64_t at, uint64_t count, Use use) {
  std::vector<Entry> piece;
  while (count > 0) {
    piece.resize(static_cast<size_t>(std::min<uint64_t>(count, kPiece / sizeof(Entry))));
    if (!file.read(at, piece.data(), piece.size() * sizeof(Entry))) return false;
    for (const Entry& entry : piece) {
      if (!use(entry)) return true;
    }
    at += piece.size() * sizeof(Entry);
    count -= piece.size();
  }
  return true;
}

/// The table of symbols does not say how long it is; GNU's hash table leads to its last entry.
bool count_by_gnu_hash(const Bytes& file, const Range& hash, uint64_t& count) {
  std::array<uint32_t, 4> header = {};  // buckets, first symbol in them, words of the filter, -
  if (hash.size < sizeof header || !file.read(hash.at, header.data(), sizeof header)) return false;
  const uint64_t first = header[1];
  const uint64_t buckets = sizeof header + uint64_t{header[2]} * 8;
  const uint64_t chains = buckets + uint64_t{header[0]} * 4;
  if (chains > hash.size) return false;
  uint64_t last = 0;
  if (!for_each<uint32_t>(file, hash.at + buckets, header[0], [&](uint32_t bucket) {
        last = std::max<uint64_t>(last, bucket);
        return true;
      })) {
    return false;
  }
  count = first;
  if (last < first) return true;  // nothing is defined
  const uint64_t skip = (last - first) * 4;
  if (skip >= hash.size - chains) return false;
  bool ended = false;
  count = last;
  return for_each<uint32_t>(file, hash.at + chains + skip, (hash.size - chains - skip) / 4,
                            [&](uint32_t chain) {
                              ++count;
                              ended = (chain & 1) != 0;
                              return !ended;
                            }) &&
         ended;
}

bool count_symbols(const Bytes& file, const Tables& tables, uint64_t& count) {
  if (tables.hash.size > 0) {
    std::array<uint32_t, 2> header = {};
    if (tables.hash.size < sizeof header ||
        !file.read(tables.hash.at, header.data(), sizeof header)) {
      return false;
    }
    count = header[1];
  } else if (tables.gnu_hash.size > 0) {
    if (!count_by_gnu_hash(file, tables.gnu_hash, count)) return false;
  }
  return count <= tables.symbols.size / sizeof(Elf64_Sym);
}

/// False: it is not in the table of strings. A very long name is left empty: it is not asked for.
bool name_of(const Tables& tables, const Elf64_Sym& symbol, std::string_view& name) {
  if (symbol.st_name >= tables.strings.size()) return false;
  const std::string_view rest = std::string_view(tables.strings).substr(symbol.st_name);
  const size_t end = rest.substr(0, kLongestName + 1).find('\0');
  name = end == std::string_view::npos ? std::string_view() : rest.substr(0, end);
  return end != std::string_view::npos || rest.size() > kLongestName;
}

/// Not the names of versions, which are absolute.
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

}  // namespace

bool read_exports(const Bytes& file, std::vector<Export>& exports) {
  Tables tables;
  uint64_t count = 0;
  if (!find_tables(file, tables) || !count_symbols(file, tables, count)) return false;
  bool named = true;
  return for_each<Elf64_Sym>(file, tables.symbols.at, count,
                             [&](const Elf64_Sym& symbol) {
                               std::string_view name;
                               if (!is_export(symbol)) return true;
                               named = name_of(tables, symbol, name);
                               if (!name.empty())
                                 exports.push_back({std::string(name), is_variable(symbol)});
                               return named;
                             }) &&
         named;
}

}  // namespace cudaguard::launcher

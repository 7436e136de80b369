// SPDX-License-Identifier: Apache-2.0
// Reads an ELF file's symbols: the names that it exports and references, and its functions. As
// careful as elf_file.h. Of large files, only the tables are read.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "shim/launcher/elf/elf_file.h"

namespace cudaguard::launcher {

struct Names {
  std::set<std::string> names;  ///< those that can be read
  bool damaged = false;         ///< the tables are damaged
};

enum class Exports { kAll, kVariables };

/// The names that other files can be bound to.
Names read_exports(const Bytes& file, Exports which = Exports::kAll);

/// False if ld.so would find no name of these hashes in the file: a search of its hash table, which
/// reads far less than all names. True also if the file has no such table, or a damaged one.
bool may_export(const Bytes& file, const ElfFacts& facts, const std::vector<uint32_t>& hashes);

/// Of the names, as in DT_GNU_HASH.
std::vector<uint32_t> gnu_hashes(const std::set<std::string>& names);

enum class References {
  kAll,
  kCopies,  ///< library variables that the executable has a copy of
};

/// The names that ld.so looks up to relocate the file.
Names read_references(const Bytes& file, References which = References::kAll);

/// The functions of one file.
class ElfFunctions {
 public:
  /// Reads .symtab, otherwise .dynsym. A damaged file may give none, or some.
  explicit ElfFunctions(const Bytes& file);
  /// The function that has the byte at `offset` of the file; empty if unknown.
  std::string name_at(const Bytes& file, uint64_t offset) const;
  /// The address of the byte at `offset` of the file in its tables; 0 if it is not loaded.
  uint64_t address_of(uint64_t offset) const;
  /// True if the file has DWARF's table of source lines.
  bool has_lines() const { return has_lines_; }

 private:
  struct Function {
    uint64_t start = 0;
    uint32_t size = 0;  ///< 0: up to the next function
    uint32_t name = 0;
  };
  bool read_table(const Bytes& file, const std::vector<Elf64_Shdr>& sections, uint32_t type);

  bool has_lines_ = false;
  std::vector<Elf64_Phdr> loads_;
  std::vector<Function> functions_;  ///< by address
  uint64_t names_ = 0;               ///< offset of the table of names in the file
};

}  // namespace cudaguard::launcher

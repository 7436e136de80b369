// SPDX-License-Identifier: Apache-2.0
// Which function is at a place in an ELF file. As careful as elf_file.h; of big files only the
// tables are read.
#pragma once

#include <string>
#include <vector>

#include "shim/launcher/elf/elf_file.h"

namespace cudaguard::launcher {

/// The functions of one file.
class ElfFunctions {
 public:
  /// From .symtab, else .dynsym. Of a damaged file: none, or some.
  explicit ElfFunctions(const Bytes& file);
  /// The name of the function that has the byte at `offset` of the file; empty: none that is known.
  std::string name_at(const Bytes& file, uint64_t offset) const;
  /// The address of the byte at `offset` of the file, as its tables have it; 0: it is not loaded.
  uint64_t address_of(uint64_t offset) const;
  /// True if it has DWARF's table of source lines.
  bool has_lines() const { return has_lines_; }

 private:
  struct Function {
    uint64_t start = 0;
    uint32_t size = 0;  ///< 0: up to the next one
    uint32_t name = 0;
  };
  bool read_table(const Bytes& file, const std::vector<Elf64_Shdr>& sections, uint32_t type);

  bool has_lines_ = false;
  std::vector<Elf64_Phdr> loads_;
  std::vector<Function> functions_;  ///< sorted
  uint64_t names_ = 0;               ///< where the table of names is in the file
};

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
// What the readers of ELF files share: where things are in the file. Every place is checked against
// the file's size before it is used.
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "shim/launcher/elf/elf_file.h"

namespace cudaguard::launcher {

/// Is [at, at + count) inside `size`? Without an overflow.
inline bool inside(uint64_t at, uint64_t count, uint64_t size) {
  return at <= size && count <= size - at;
}

/// The string that starts at `at` and ends before `end`. False: it does not end there, or is longer
/// than any name.
bool read_string(const Bytes& file, uint64_t at, uint64_t end, std::string& to);

struct Layout {
  std::vector<Elf64_Phdr> loads;
  Elf64_Phdr dynamic = {};
  Elf64_Phdr interpreter = {};
  bool has_dynamic = false;
  bool has_interpreter = false;
};

/// Empty, or a clause that says what is damaged.
std::string read_layout(const Bytes& file, const Elf64_Ehdr& elf, Layout& layout);

/// The place in the file of what is loaded at `address`; false: nowhere. `end`: of that segment.
bool file_offset(const Layout& layout, uint64_t address, uint64_t& offset, uint64_t& end);

/// Up to DT_NULL. False: the section is cut short.
bool read_dynamic_entries(const Bytes& file, const Layout& layout, std::vector<Elf64_Dyn>& entries);

}  // namespace cudaguard::launcher

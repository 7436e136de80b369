// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/unwind/process_image.h"

#include <elf.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>

namespace cudaguard::launcher {

namespace {

/// A linker writes about 12 headers.
constexpr size_t kMostHeaders = 64;

/// Takes a hexadecimal number and the character after it.
uint64_t take_hex(std::string_view& line) {
  uint64_t value = 0;
  const char* end = std::from_chars(line.data(), line.data() + line.size(), value, 16).ptr;
  line.remove_prefix(std::min(line.size(), static_cast<size_t>(end - line.data()) + 1));
  return value;
}

/// The address of .eh_frame_hdr, from the program headers of the ELF file whose first byte is
/// mapped at `start`. 0 if there is none.
uint64_t find_tables(WordReader& memory, uint64_t start) {
  Elf64_Ehdr elf = {};
  if (!memory.read(start, &elf, sizeof elf) || memcmp(elf.e_ident, ELFMAG, SELFMAG) != 0) return 0;
  std::vector<Elf64_Phdr> headers(std::min<size_t>(elf.e_phnum, kMostHeaders));
  const size_t size = headers.size() * sizeof(Elf64_Phdr);
  if (!memory.read(start + elf.e_phoff, headers.data(), size)) return 0;
  const auto find = [&](auto is_wanted) {
    const auto found = std::find_if(headers.begin(), headers.end(), is_wanted);
    return found == headers.end() ? nullptr : &*found;
  };
  const Elf64_Phdr* first = find(
      [](const Elf64_Phdr& header) { return header.p_type == PT_LOAD && header.p_offset == 0; });
  if (first == nullptr) return 0;
  const Elf64_Phdr* tables =
      find([](const Elf64_Phdr& header) { return header.p_type == PT_GNU_EH_FRAME; });
  return tables == nullptr ? 0 : start - first->p_vaddr + tables->p_vaddr;
}

}  // namespace

// A line is "55d0c0a00000-55d0c0a21000 r-xp 00002000 08:01 1234      /path of/the file"
ProcessImage::ProcessImage(std::string maps) : text_(std::move(maps)) {
  std::string_view rest = text_;
  for (size_t end = 0; (end = rest.find('\n')) != std::string_view::npos;) {
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end + 1);
    Mapping mapping;
    mapping.from = take_hex(line);
    mapping.to = take_hex(line);
    mapping.executable = line.substr(0, 4).find('x') != std::string_view::npos;
    line.remove_prefix(std::min<size_t>(line.size(), strlen("r-xp ")));
    mapping.offset = take_hex(line);
    const size_t name = line.find_first_of("/[");
    if (name != std::string_view::npos) mapping.file = line.substr(name);
    mappings_.push_back(mapping);
  }
}

MappedCode ProcessImage::find(WordReader& memory, uint64_t address) const {
  auto here = std::partition_point(mappings_.begin(), mappings_.end(),
                                   [&](const Mapping& mapping) { return mapping.to <= address; });
  if (here == mappings_.end() || address < here->from || !here->executable) return {};
  if (!here->file.starts_with('/') && here->file != "[vdso]") return {};
  MappedCode code{here->file, address - here->from + here->offset, 0};
  // ld.so maps a file's parts one after the other.
  for (auto part = here; part->file == code.file; --part) {
    if (part->offset == 0) {
      code.tables = find_tables(memory, part->from);
      break;
    }
    if (part == mappings_.begin()) break;
  }
  return code;
}

uint64_t ProcessImage::address_bits() const {
  return ~uint64_t{0} >> std::countl_zero(mappings_.back().to - 1);
}

}  // namespace cudaguard::launcher

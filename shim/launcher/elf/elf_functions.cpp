// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/elf/elf_functions.h"

#include <algorithm>
#include <string_view>

namespace cudaguard::launcher {

namespace {

/// Each needs 16 bytes. libtorch_cuda.so has 0.3 million, a Chromium with debug symbols 2.
constexpr size_t kMostFunctions = size_t{4} << 20;

bool is_function(const Elf64_Sym& symbol) {
  const unsigned char type = ELF64_ST_TYPE(symbol.st_info);
  return (type == STT_FUNC || type == STT_GNU_IFUNC) && symbol.st_shndx != SHN_UNDEF;
}

bool is_named(const Bytes& file, const Elf64_Shdr& names, const Elf64_Shdr& section,
              std::string_view wanted) {
  char name[32] = {};
  return wanted.size() < sizeof name && section.sh_name < names.sh_size &&
         file.read(names.sh_offset + section.sh_name, name, wanted.size() + 1) && wanted == name;
}

}  // namespace

ElfFunctions::ElfFunctions(const Bytes& file) {
  Elf64_Ehdr elf = {};
  if (read_elf(file).type == 0 || !file.read(0, &elf, sizeof elf)) return;
  if (elf.e_phentsize != sizeof(Elf64_Phdr)) return;
  for_each_entry<Elf64_Phdr>(file, elf.e_phoff, elf.e_phnum, [&](const Elf64_Phdr& header) {
    if (header.p_type == PT_LOAD) loads_.push_back(header);
  });
  const std::vector<Elf64_Shdr> sections = read_sections(file, elf);
  has_lines_ = elf.e_shstrndx < sections.size() &&
               std::any_of(sections.begin(), sections.end(), [&](const Elf64_Shdr& section) {
                 return section.sh_type == SHT_PROGBITS &&
                        is_named(file, sections[elf.e_shstrndx], section, ".debug_line");
               });
  if (!read_table(file, sections, SHT_SYMTAB)) read_table(file, sections, SHT_DYNSYM);
}

bool ElfFunctions::read_table(const Bytes& file, const std::vector<Elf64_Shdr>& sections,
                              uint32_t type) {
  const auto table = std::find_if(sections.begin(), sections.end(), [&](const Elf64_Shdr& section) {
    return section.sh_type == type && section.sh_link < sections.size();
  });
  if (table == sections.end()) return false;
  names_ = sections[table->sh_link].sh_offset;
  const uint64_t count = table->sh_size / sizeof(Elf64_Sym);
  for_each_entry<Elf64_Sym>(file, table->sh_offset, count, [&](const Elf64_Sym& symbol) {
    if (!is_function(symbol) || functions_.size() == kMostFunctions) return;
    const auto size = static_cast<uint32_t>(std::min<uint64_t>(symbol.st_size, UINT32_MAX));
    functions_.push_back({symbol.st_value, size, symbol.st_name});
  });
  std::sort(functions_.begin(), functions_.end(), [](const Function& one, const Function& other) {
    return one.start != other.start ? one.start < other.start : one.size < other.size;
  });
  return !functions_.empty();
}

uint64_t ElfFunctions::address_of(uint64_t offset) const {
  const auto load = std::find_if(loads_.begin(), loads_.end(), [&](const Elf64_Phdr& header) {
    return offset >= header.p_offset && offset - header.p_offset < header.p_filesz;
  });
  return load == loads_.end() ? 0 : offset - load->p_offset + load->p_vaddr;
}

std::string ElfFunctions::name_at(const Bytes& file, uint64_t offset) const {
  const uint64_t address = address_of(offset);
  if (address == 0) return {};
  const auto after = std::upper_bound(
      functions_.begin(), functions_.end(), address,
      [](uint64_t value, const Function& function) { return value < function.start; });
  if (after == functions_.begin()) return {};
  const Function& function = *(after - 1);
  if (function.size != 0 && address - function.start >= function.size) return {};
  const uint64_t at = names_ + function.name;
  std::string name;
  if (at >= names_) read_string(file, at, file.size(), name);
  return name;
}

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/elf/elf_layout.h"

#include <algorithm>
#include <utility>

namespace cudaguard::launcher {

namespace {

// More than any linker makes; a file that claims more is not worth the memory.
constexpr size_t kMostDynamic = 65536;
constexpr size_t kLongestName = 4096;

}  // namespace

bool read_string(const Bytes& file, uint64_t at, uint64_t end, std::string& to) {
  end = std::min(end, file.size());
  if (at >= end) return false;
  const size_t most = static_cast<size_t>(std::min<uint64_t>(end - at, kLongestName + 1));
  std::string text(most, '\0');
  if (!file.read(at, text.data(), most)) return false;
  const size_t length = text.find('\0');
  if (length == std::string::npos) return false;
  text.resize(length);
  to = std::move(text);
  return true;
}

std::string read_layout(const Bytes& file, const Elf64_Ehdr& elf, Layout& layout) {
  if (elf.e_phnum == 0) return "it has no program header";
  if (elf.e_phentsize != sizeof(Elf64_Phdr)) return "its program header is damaged";
  for (size_t i = 0; i < elf.e_phnum; ++i) {
    Elf64_Phdr header = {};
    const uint64_t skip = i * sizeof header;
    if (!inside(elf.e_phoff, skip + sizeof header, file.size()) ||
        !file.read(elf.e_phoff + skip, &header, sizeof header)) {
      return "its program header is cut short";
    }
    const bool whole = inside(header.p_offset, header.p_filesz, file.size());
    if (header.p_type == PT_LOAD) {
      if (!whole) return "it is cut short";
      layout.loads.push_back(header);
    } else if (header.p_type == PT_DYNAMIC) {
      if (!whole) return "it is cut short";
      layout.dynamic = header;
      layout.has_dynamic = true;
    } else if (header.p_type == PT_INTERP && !layout.has_interpreter) {
      if (!whole) return "it is cut short";
      layout.interpreter = header;
      layout.has_interpreter = true;
    }
  }
  return {};
}

bool file_offset(const Layout& layout, uint64_t address, uint64_t& offset, uint64_t& end) {
  for (const Elf64_Phdr& load : layout.loads) {
    if (address < load.p_vaddr || address - load.p_vaddr >= load.p_filesz) continue;
    offset = load.p_offset + (address - load.p_vaddr);
    end = load.p_offset + load.p_filesz;
    return true;
  }
  return false;
}

bool read_dynamic_entries(const Bytes& file, const Layout& layout,
                          std::vector<Elf64_Dyn>& entries) {
  if (!layout.has_dynamic) return true;
  const size_t count = static_cast<size_t>(
      std::min<uint64_t>(layout.dynamic.p_filesz / sizeof(Elf64_Dyn), kMostDynamic));
  for (size_t i = 0; i < count; ++i) {
    Elf64_Dyn entry = {};
    if (!file.read(layout.dynamic.p_offset + i * sizeof entry, &entry, sizeof entry)) return false;
    if (entry.d_tag == DT_NULL) break;
    entries.push_back(entry);
  }
  return true;
}

}  // namespace cudaguard::launcher

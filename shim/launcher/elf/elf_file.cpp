// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/elf/elf_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "shim/launcher/elf/elf_layout.h"

namespace cudaguard::launcher {

namespace {

// More than any linker makes.
constexpr size_t kMostNeeded = 4096;

std::string read_dynamic(const Bytes& file, const Layout& layout, ElfFacts& facts) {
  std::vector<Elf64_Dyn> entries;
  if (!read_dynamic_entries(file, layout, entries)) return "its dynamic section is cut short";
  std::vector<uint64_t> needed;
  uint64_t table = 0;
  uint64_t table_size = 0;
  uint64_t soname = 0;
  for (const Elf64_Dyn& entry : entries) {
    const uint64_t value = entry.d_un.d_val;
    if (entry.d_tag == DT_NEEDED && needed.size() < kMostNeeded) needed.push_back(value);
    if (entry.d_tag == DT_STRTAB) table = value;
    if (entry.d_tag == DT_STRSZ) table_size = value;
    if (entry.d_tag == DT_SONAME) soname = value;
  }
  if (needed.empty() && soname == 0) return {};
  uint64_t start = 0;
  uint64_t end = 0;
  if (!file_offset(layout, table, start, end)) return "its string table is not in the file";
  end = std::min(end, inside(start, table_size, end) ? start + table_size : end);
  const auto name_at = [&](uint64_t at, std::string& to) {
    return at <= end - start && read_string(file, start + at, end, to);
  };
  for (const uint64_t at : needed) {
    std::string name;
    if (!name_at(at, name)) return "a name in its string table is damaged";
    facts.needed.push_back(std::move(name));
  }
  if (soname != 0 && !name_at(soname, facts.soname)) return "its own name is damaged";
  return {};
}

}  // namespace

FileBytes::FileBytes(const std::string& path)
    : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)) {
  struct stat status = {};
  if (fd_ < 0 || fstat(fd_, &status) != 0) {
    error_ = errno;
  } else if (!S_ISREG(status.st_mode)) {
    error_ = EACCES;
  } else {
    size_ = static_cast<uint64_t>(status.st_size);
  }
}

FileBytes::~FileBytes() {
  if (fd_ >= 0) close(fd_);
}

bool FileBytes::read(uint64_t at, void* to, size_t count) const {
  if (error_ != 0 || !inside(at, count, size_)) return false;
  char* out = static_cast<char*>(to);
  while (count > 0) {
    const ssize_t got = pread(fd_, out, count, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    out += got;
    at += static_cast<uint64_t>(got);
    count -= static_cast<size_t>(got);
  }
  return true;
}

ElfFacts read_elf(const Bytes& file) {
  ElfFacts facts;
  unsigned char ident[EI_NIDENT] = {};
  if (!file.read(0, ident, SELFMAG) || memcmp(ident, ELFMAG, SELFMAG) != 0) return facts;
  facts.is_elf = true;
  facts.damage = "its ELF header is cut short";
  if (!file.read(0, ident, sizeof ident)) return facts;
  facts.is_64 = ident[EI_CLASS] == ELFCLASS64;
  facts.little_endian = ident[EI_DATA] == ELFDATA2LSB;
  // At the same place in both classes.
  if (!file.read(offsetof(Elf64_Ehdr, e_machine), &facts.machine, sizeof facts.machine)) {
    return facts;
  }
  if (!facts.is_64 || !facts.little_endian) {
    facts.damage.clear();
    return facts;
  }
  Elf64_Ehdr elf = {};
  if (!file.read(0, &elf, sizeof elf)) return facts;
  facts.type = elf.e_type;
  Layout layout;
  facts.damage = elf.e_type == ET_EXEC || elf.e_type == ET_DYN ? read_layout(file, elf, layout)
                                                               : "it is no executable";
  if (!facts.damage.empty()) return facts;
  for (const Elf64_Phdr& load : layout.loads) {
    facts.loaded_end = std::max(facts.loaded_end, load.p_offset + load.p_filesz);
  }
  if (layout.has_interpreter &&
      (!read_string(file, layout.interpreter.p_offset,
                    layout.interpreter.p_offset + layout.interpreter.p_filesz, facts.interpreter) ||
       facts.interpreter.empty())) {
    facts.damage = "the name of its interpreter is damaged";
    return facts;
  }
  if (layout.has_dynamic) facts.damage = read_dynamic(file, layout, facts);
  return facts;
}

bool contains(const Bytes& file, std::string_view text, uint64_t end) {
  constexpr size_t kPiece = size_t{16} << 10;  // as much memory as is touched
  if (text.empty() || text.size() > 64) return false;
  const size_t overlap = text.size() - 1;
  end = std::min({end, file.size(), kMostSearched});
  std::string piece;
  for (uint64_t at = 0; at < end; at += kPiece) {
    piece.resize(static_cast<size_t>(std::min<uint64_t>(kPiece + overlap, end - at)));
    if (!file.read(at, piece.data(), piece.size())) return false;
    if (memmem(piece.data(), piece.size(), text.data(), text.size()) != nullptr) return true;
  }
  return false;
}

}  // namespace cudaguard::launcher

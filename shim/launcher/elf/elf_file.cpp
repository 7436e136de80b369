// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/elf/elf_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

namespace cudaguard::launcher {

namespace {

// A linker makes far fewer; a file that claims more is not worth the memory.
constexpr size_t kMostDynamic = 65536;
constexpr size_t kMostNeeded = 4096;

/// True if [at, at + count) is inside `size`. Cannot overflow.
bool inside(uint64_t at, uint64_t count, uint64_t size) { return at <= size && count <= size - at; }

/// Fills in `facts.loads` and the two other headers that are used; their p_type stays PT_NULL if
/// they are missing. Returns a clause that says what is damaged; empty if nothing is.
std::string read_layout(const Bytes& file, const Elf64_Ehdr& elf, ElfFacts& facts,
                        Elf64_Phdr& interpreter, Elf64_Phdr& dynamic) {
  if (elf.e_phnum == 0) return "it has no program header";
  if (elf.e_phentsize != sizeof(Elf64_Phdr)) return "its program header is damaged";
  for (size_t i = 0; i < elf.e_phnum; ++i) {
    Elf64_Phdr header = {};
    const uint64_t skip = i * sizeof header;
    if (!inside(elf.e_phoff, skip + sizeof header, file.size()) ||
        !file.read(elf.e_phoff + skip, &header, sizeof header)) {
      return "its program header is cut short";
    }
    if (header.p_type != PT_LOAD && header.p_type != PT_DYNAMIC && header.p_type != PT_INTERP) {
      continue;
    }
    if (!inside(header.p_offset, header.p_filesz, file.size())) return "it is cut short";
    if (header.p_type == PT_LOAD) facts.loads.push_back(header);
    if (header.p_type == PT_DYNAMIC) dynamic = header;
    if (header.p_type == PT_INTERP && interpreter.p_type == PT_NULL) interpreter = header;
  }
  return {};
}

/// The segment that has the address in its bytes of the file, or the end of facts.loads.
std::vector<Elf64_Phdr>::const_iterator segment_of(const ElfFacts& facts, uint64_t address) {
  return std::ranges::find_if(facts.loads, [&](const Elf64_Phdr& header) {
    return address >= header.p_vaddr && address - header.p_vaddr < header.p_filesz;
  });
}

std::string read_dynamic(const Bytes& file, const Elf64_Phdr& dynamic, ElfFacts& facts) {
  std::vector<uint64_t> needed;
  std::map<int64_t, uint64_t> values;
  const uint64_t count = dynamic.p_filesz / sizeof(Elf64_Dyn);
  for (uint64_t i = 0; i < std::min<uint64_t>(count, kMostDynamic); ++i) {
    Elf64_Dyn entry = {};
    if (!file.read(dynamic.p_offset + i * sizeof entry, &entry, sizeof entry)) {
      return "its dynamic section is cut short";
    }
    if (entry.d_tag == DT_NULL) break;
    values[entry.d_tag] = entry.d_un.d_val;
    if (entry.d_tag == DT_NEEDED && needed.size() < kMostNeeded) {
      needed.push_back(entry.d_un.d_val);
    }
  }
  if (const auto load = segment_of(facts, values[DT_GNU_HASH]);
      values[DT_GNU_HASH] != 0 && load != facts.loads.end()) {
    facts.gnu_hash = load->p_offset + (values[DT_GNU_HASH] - load->p_vaddr);
  }
  for (const int64_t tag : {DT_RPATH, DT_CONFIG, DT_FILTER, DT_AUXILIARY, DT_AUDIT, DT_DEPAUDIT}) {
    facts.steers_search |= values.contains(tag);
  }
  facts.steers_search |= (values[DT_FLAGS_1] & DF_1_NODEFLIB) != 0;
  facts.steers_search |= needed.size() == kMostNeeded || count > kMostDynamic;  // not all were read
  const uint64_t soname = values[DT_SONAME];
  if (needed.empty() && soname == 0) return {};
  const uint64_t address = values[DT_STRTAB];
  const auto load = segment_of(facts, address);
  if (load == facts.loads.end()) return "its string table is not in the file";
  const uint64_t start = load->p_offset + (address - load->p_vaddr);
  // Tables written by patchelf may continue in the next segment.
  const bool sized = inside(start, values[DT_STRSZ], file.size());
  const uint64_t end = sized ? start + values[DT_STRSZ] : load->p_offset + load->p_filesz;
  const auto name_at = [&](uint64_t at, std::string& to) {
    return at <= end - start && read_string(file, start + at, end, to);
  };
  for (const uint64_t at : needed) {
    if (!name_at(at, facts.needed.emplace_back())) return "a name in its string table is damaged";
  }
  if (soname != 0 && !name_at(soname, facts.soname)) return "its own name is damaged";
  const uint64_t run_path = values[DT_RUNPATH];
  facts.steers_search |= run_path != 0 && !name_at(run_path, facts.run_path);
  return {};
}

std::string interpreter_of_32_bits(const Bytes& file) {
  Elf32_Ehdr elf = {};
  std::string name;
  if (!file.read(0, &elf, sizeof elf)) return name;
  for (uint64_t i = 0; i < elf.e_phnum; ++i) {
    Elf32_Phdr part = {};
    if (!file.read(elf.e_phoff + i * sizeof part, &part, sizeof part)) return name;
    if (part.p_type != PT_INTERP) continue;
    const uint64_t end = uint64_t{part.p_offset} + part.p_filesz;
    if (!read_string(file, part.p_offset, end, name)) name.clear();
    return name;
  }
  return name;
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
  constexpr uint64_t kStart = 4096;
  constexpr uint64_t kPiece = 1024;
  if (error_ != 0 || !inside(at, count, size_)) return false;
  if (count > kPiece) return read_all(at, static_cast<char*>(to), count);
  const bool at_start = at + count <= kStart;
  auto& [from, size, bytes] = at_start ? start_ : last_;
  if (at < from || !inside(at - from, count, size)) {
    const uint64_t most = at_start ? kStart : kPiece;
    if (!bytes) bytes = std::make_unique_for_overwrite<char[]>(most);
    from = at_start ? 0 : at;
    size = static_cast<size_t>(std::min(most, size_ - from));
    if (!read_all(from, bytes.get(), size)) {
      size = 0;
      return read_all(at, static_cast<char*>(to), count);  // the file was truncated meanwhile
    }
  }
  memcpy(to, bytes.get() + (at - from), count);
  return true;
}

bool FileBytes::read_all(uint64_t at, char* to, size_t count) const {
  while (count > 0) {
    const ssize_t got = pread(fd_, to, count, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    at += static_cast<uint64_t>(got);
    count -= static_cast<size_t>(got);
  }
  return true;
}

bool read_string(const Bytes& file, uint64_t at, uint64_t end, std::string& to) {
  end = std::min(end, file.size());
  if (at >= end) return false;
  char part[64];
  for (to.clear(); at < end && to.size() <= kLongestName; at += sizeof part) {
    const auto size = static_cast<size_t>(std::min<uint64_t>(end - at, sizeof part));
    if (!file.read(at, part, size)) return false;
    const size_t length = strnlen(part, size);
    to.append(part, length);
    if (length < size) return to.size() <= kLongestName;
  }
  return false;
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
  // This field is at the same place in both classes.
  if (!file.read(offsetof(Elf64_Ehdr, e_machine), &facts.machine, sizeof facts.machine)) {
    return facts;
  }
  if (!facts.is_64 || !facts.little_endian) {
    facts.damage.clear();
    if (facts.little_endian) facts.interpreter = interpreter_of_32_bits(file);
    return facts;
  }
  Elf64_Ehdr elf = {};
  if (!file.read(0, &elf, sizeof elf)) return facts;
  facts.type = elf.e_type;
  Elf64_Phdr name = {};
  Elf64_Phdr dynamic = {};
  facts.damage = elf.e_type == ET_EXEC || elf.e_type == ET_DYN
                     ? read_layout(file, elf, facts, name, dynamic)
                     : "it is no executable";
  if (!facts.damage.empty()) return facts;
  for (const Elf64_Phdr& load : facts.loads) {
    facts.loaded_end = std::max(facts.loaded_end, load.p_offset + load.p_filesz);
  }
  if (name.p_type != PT_NULL &&
      (!read_string(file, name.p_offset, name.p_offset + name.p_filesz, facts.interpreter) ||
       facts.interpreter.empty())) {
    facts.damage = "the name of its interpreter is damaged";
  } else if (dynamic.p_type != PT_NULL) {
    facts.damage = read_dynamic(file, dynamic, facts);
  }
  return facts;
}

bool contains(const Bytes& file, std::string_view text, uint64_t end) {
  constexpr size_t kPiece = size_t{64} << 10;  // the memory that the search uses
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

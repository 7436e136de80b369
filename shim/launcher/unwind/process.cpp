// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/unwind/process.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>

namespace cudaguard::launcher {

namespace {

/// About 80,000 mappings. The kernel allows 65,530 unless the administrator raises the limit.
constexpr size_t kMostMaps = size_t{8} << 20;

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

int read_file(const std::string& path, std::string& to, size_t most) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno;
  char part[16384];
  ssize_t count = 0;
  do {
    count = read(fd, part, sizeof part);
    if (count > 0) to.append(part, static_cast<size_t>(count));
  } while (count > 0 && to.size() < most);
  const int error = count < 0 ? errno : 0;
  close(fd);
  return error;
}

WaitingProcess::~WaitingProcess() {
  if (memory_ >= 0) close(memory_);
}

const WaitingProcess::Page* WaitingProcess::page_at(uint64_t address) {
  const auto known = pages_.find(address);
  if (known != pages_.end()) return &known->second;
  if (pages_.size() == kMostPages) pages_.clear();
  Page& page = pages_[address];
  if (read_page(address, page)) return &page;
  pages_.erase(address);
  return nullptr;
}

bool WaitingProcess::read_page(uint64_t address, Page& page) {
  if (memory_ < 0) {
    const iovec local = {page.data(), kPageSize};
    const iovec remote = {reinterpret_cast<void*>(address), kPageSize};
    if (process_vm_readv(thread_, &local, 1, &remote, 1, 0) == kPageSize) return true;
    if (!in_proc_ || (errno != EPERM && errno != ENOSYS)) return false;
    // Docker 20.10 refuses the call by default. The kernel gives this file to the same processes.
    memory_ = open(("/proc/" + std::to_string(thread_) + "/mem").c_str(), O_RDONLY | O_CLOEXEC);
  }
  return pread(memory_, page.data(), kPageSize, static_cast<off_t>(address)) == kPageSize;
}

bool WaitingProcess::read(uint64_t address, void* to, size_t size) {
  auto* out = static_cast<char*>(to);
  while (size > 0) {
    const uint64_t offset = address % kPageSize;
    const Page* page = page_at(address - offset);
    if (page == nullptr) return false;
    const size_t part = std::min<size_t>(size, kPageSize - offset);
    memcpy(out, page->data() + offset, part);
    out += part;
    address += part;
    size -= part;
  }
  return true;
}

int WaitingProcess::fetch(std::span<const uint64_t> addresses) {
  constexpr size_t kMost = kMostPages / 4;
  if (pages_.size() > kMostPages - kMost) pages_.clear();
  std::vector<iovec> local;
  std::vector<iovec> remote;
  for (const uint64_t address : addresses) {
    const uint64_t from = address - address % kPageSize;
    const auto [place, is_new] = pages_.try_emplace(from);
    if (!is_new) continue;
    local.push_back({place->second.data(), kPageSize});
    remote.push_back({reinterpret_cast<void*>(from), kPageSize});
    if (local.size() == kMost) break;
  }
  if (local.empty()) return 0;
  const ssize_t got =
      process_vm_readv(thread_, local.data(), local.size(), remote.data(), remote.size(), 0);
  const int error = got < 0 ? errno : 0;
  const size_t read = got < 0 ? 0 : static_cast<size_t>(got) / kPageSize;
  for (size_t i = read; i < remote.size(); ++i) {
    pages_.erase(reinterpret_cast<uint64_t>(remote[i].iov_base));
  }
  return error == 0 && read < remote.size() ? EFAULT : error;
}

bool WaitingProcess::read_text(uint64_t address, size_t most, std::string& to) {
  while (most > 0) {
    const uint64_t offset = address % kPageSize;
    const Page* page = page_at(address - offset);
    if (page == nullptr) return false;
    const char* from = page->data() + offset;
    const size_t part = std::min<size_t>(most, kPageSize - offset);
    const size_t length = strnlen(from, part);
    to.append(from, length);
    if (length < part) return true;
    address += part;
    most -= part;
  }
  return true;
}

std::string WaitingProcess::maps() {
  std::string text;
  errno = read_file("/proc/" + std::to_string(thread_) + "/maps", text, kMostMaps);
  return text;
}

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
  auto found = std::partition_point(mappings_.begin(), mappings_.end(),
                                    [&](const Mapping& mapping) { return mapping.to <= address; });
  if (found == mappings_.end() || address < found->from || !found->executable) return {};
  if (!found->file.starts_with('/') && found->file != "[vdso]") return {};
  MappedCode code{found->file, address - found->from + found->offset, 0};
  // ld.so maps a file's parts one after the other.
  for (auto part = found; part->file == code.file; --part) {
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

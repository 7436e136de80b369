// SPDX-License-Identifier: Apache-2.0
#include "shim/guard/elf/own_files.h"

#include <link.h>

#include <cerrno>
#include <cstring>

#include "policy/text.h"
#include "shim/guard/elf/own_maps.h"
#include "shim/guard/elf/symbol_lookup.h"
#include "shim/guard/sys/system.h"

namespace cudaguard {

const void* symbol_of(const void* link_map, const char* name) {
  const auto* map = static_cast<const struct link_map*>(link_map);
  return map == nullptr ? nullptr : elf_symbol(map->l_ld, map->l_addr, name);
}

bool OwnPath::set_directory_of(std::string_view path) {
  Text out(text_, size_ - 1);
  out.put(directory_of(path)).put("/cudaguard/");
  directory_ = out.cut() ? 0 : out.view().size();
  return directory_ != 0;
}

bool OwnPath::set_directory(const char* beside) {
  return beside != nullptr && set_directory_of(beside);
}

bool OwnPath::set_real_directory() {
  const CodePlace place = place_of(reinterpret_cast<const void*>(&own_path), text_, size_ - 1);
  return !place.module.empty() &&
         set_directory_of(place.module);  // in place: a prefix of its own text
}

const char* OwnPath::file(std::string_view name) {
  Text out(text_ + directory_, size_ - 1 - directory_);
  if (directory_ != 0) out.put(name);
  text_[out.cut() ? 0 : directory_ + out.view().size()] = '\0';
  return text_;
}

const char* own_path(const StartObjects& start) {
  const link_map* guard = start.guard();
  return guard != nullptr && guard->l_name[0] == '/' ? guard->l_name : nullptr;
}

bool is_own_file_there(const StartObjects& start) {
  struct stat status = {};
  const char* path = own_path(start);
  if (path != nullptr && sys::stat(path, &status) == 0) return true;
  const sys::Mapped<PathRoom> room;
  if (!room) return true;
  const CodePlace place =
      place_of(reinterpret_cast<const void*>(&own_path), *room, sizeof *room - 1);
  (*room)[place.module.size()] = '\0';
  return !place.module.empty() && sys::stat(*room, &status) == 0;
}

[[gnu::cold, gnu::noinline]] Unusable why_unusable(const char* path) {
  const sys::File file(path, O_RDONLY | O_CLOEXEC);
  if (!file.ok()) {
    if (file.error() == ENOENT) return Unusable::kMissing;
    const bool passing = file.error() == EMFILE || file.error() == ENFILE || file.error() == ENOMEM;
    return passing ? Unusable::kPassing : Unusable::kUnreadable;
  }
  struct stat status = {};
  union {
    ElfW(Ehdr) header;
    unsigned char bytes[1024];
  } start = {};
  if (sys::fstat(file.fd(), &status) != 0) return Unusable::kUnreadable;
  const long got = sys::read(file.fd(), start.bytes, sizeof start.bytes);
  const ElfW(Ehdr)& header = start.header;
  if (got < static_cast<long>(sizeof header)) return Unusable::kCutShort;
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return Unusable::kNoLibrary;
#if defined(__x86_64__)
  constexpr unsigned kMachine = EM_X86_64;
#else
  constexpr unsigned kMachine = EM_AARCH64;
#endif
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != kMachine) {
    return Unusable::kOtherMachine;
  }
  const auto size = static_cast<uint64_t>(status.st_size);
  const uint64_t table = uint64_t{header.e_phnum} * sizeof(ElfW(Phdr));
  const auto have = static_cast<uint64_t>(got);
  if (table > have || header.e_phoff > have - table) return Unusable::kCutShort;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    ElfW(Phdr) segment;
    memcpy(&segment, start.bytes + header.e_phoff + i * sizeof segment, sizeof segment);
    if (segment.p_type != PT_LOAD) continue;
    if (segment.p_filesz > size || segment.p_offset > size - segment.p_filesz)
      return Unusable::kCutShort;
  }
  return Unusable::kNo;
}

Unusable why_not_loaded() {
  constexpr size_t kRoom = size_t{512} * 1024;
  void* trial = sys::map(kRoom);
  if (trial == nullptr) return Unusable::kPassing;
  sys::unmap(trial, kRoom);
  return Unusable::kNotLoaded;
}

}  // namespace cudaguard

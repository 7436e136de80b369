// SPDX-License-Identifier: Apache-2.0
#include "shim/guard/stack/maps.h"

#include <link.h>

#include "shim/guard/elf/symbol_lookup.h"
#include "shim/guard/sys/system.h"

namespace cudaguard {

void Maps::fill() {
  const sys::File file("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (!file.ok()) return;
  MapsReader in(file.fd(), buffer, sizeof buffer);
  char* path = paths;
  const char* end = paths + sizeof paths;
  while (count < kMost && in.next(at[count], path, static_cast<size_t>(end - path))) {
    Mapping& mapping = at[count];
    // A library has several mappings in a row, so its path is kept once.
    if (count != 0 && mapping.length != 0 && at[count - 1].file() == mapping.file()) {
      mapping.path = at[count - 1].path;
    } else {
      path += mapping.length;
    }
    ++count;
  }
}

const Mapping* Maps::find(uint64_t address) const {
  const Mapping* low = at;
  for (unsigned left = count; left != 0; left /= 2) {
    const Mapping* middle = low + left / 2;
    if (middle->holds(address)) return middle;
    if (middle->to > address) continue;
    low = middle + 1;
    --left;
  }
  return nullptr;
}

bool Maps::readable(uint64_t address, uint64_t size) const {
  const Mapping* mapping = find(address);
  for (const Mapping* end = at + count; mapping != nullptr && mapping != end && mapping->readable;
       ++mapping) {
    if (!mapping->holds(address)) return false;
    const uint64_t room = mapping->to - address;
    if (size <= room) return true;
    size -= room;
    address = mapping->to;
  }
  return false;
}

const Mapping* Maps::next_object(const Mapping* last, const char* name) const {
  for (const Mapping* mapping = last == nullptr ? at : last + 1; mapping != at + count; ++mapping) {
    if (mapping->offset == 0 && base_name(mapping->file()).starts_with(name)) return mapping;
  }
  return nullptr;
}

LoadedObject::LoadedObject(const Maps& maps, const Mapping& first) : maps_(maps), first_(first) {
  // The headers that describe an object are in its first page.
  const auto* header = reinterpret_cast<const ElfW(Ehdr)*>(first.from);
  if (!first.readable || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return;
  const uint64_t end = first.from + header->e_phoff + sizeof(ElfW(Phdr)) * header->e_phnum;
  if (!first.holds(end)) return;
  const auto* segment = reinterpret_cast<const ElfW(Phdr)*>(first.from + header->e_phoff);
  for (; reinterpret_cast<uint64_t>(segment) != end; ++segment) {
    if (segment->p_type == PT_LOAD && segment->p_offset == 0) base_ = first.from - segment->p_vaddr;
    const uint64_t at = base_ + segment->p_vaddr;
    const Mapping* mapping = maps.find(at);
    // Another thread may be loading the object: this part becomes read-only after its relocation.
    if (segment->p_type == PT_GNU_RELRO && mapping != nullptr && mapping->writable) {
      dynamic_ = nullptr;
      return;
    }
    if (segment->p_type != PT_DYNAMIC) continue;
    if (mapping == nullptr || !mapping->readable || mapping->file() != first.file() ||
        mapping->place(at).offset != segment->p_offset) {
      return;
    }
    dynamic_ = reinterpret_cast<const void*>(at);
  }
}

const void* LoadedObject::symbol(const char* name) const {
  if (dynamic_ == nullptr) return nullptr;
  return elf_symbol(static_cast<const ElfW(Dyn)*>(dynamic_), base_, name);
}

bool LoadedObject::needs(std::string_view file) const {
  if (dynamic_ == nullptr) return false;
  const auto* entry = static_cast<const ElfW(Dyn)*>(dynamic_);
  const char* strings = elf_detail::table<char>(entry, base_, DT_STRTAB);
  for (; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_NEEDED && file == strings + entry->d_un.d_val) return true;
  }
  return false;
}

const void* LoadedObject::code(const char* name) const {
  const void* found = symbol(name);
  const Mapping* mapping = maps_.find(reinterpret_cast<uint64_t>(found));
  const bool own = mapping != nullptr && mapping->executable && mapping->file() == first_.file();
  return own ? found : nullptr;
}

}  // namespace cudaguard

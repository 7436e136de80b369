// SPDX-License-Identifier: Apache-2.0
// What dl_iterate_phdr reports about a loaded object. Only reads; thread-safe inside its callback.
#pragma once

#include <link.h>

namespace cudaguard {

// True if one of the object's segments holds the address.
inline bool holds(const dl_phdr_info& object, const void* address) {
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object.dlpi_phdr[i];
    const ElfW(Addr) offset =
        reinterpret_cast<ElfW(Addr)>(address) - object.dlpi_addr - segment.p_vaddr;
    if (segment.p_type == PT_LOAD && offset < segment.p_memsz) return true;
  }
  return false;
}

// The addresses from an object's first segment to its last one.
struct Extent {
  ElfW(Addr) from = 0;
  ElfW(Addr) to = 0;
  bool holds(const void* address) const {
    return reinterpret_cast<ElfW(Addr)>(address) - from < to - from;
  }
};

// Returns the extent of the object that holds the address, empty if none does. Takes the loader's
// lock.
inline Extent extent_of(const void* address) {
  struct Search {
    const void* address;
    Extent extent;
  } search = {address, {}};
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void* data) {
        auto& wanted = *static_cast<Search*>(data);
        if (!holds(*object, wanted.address)) return 0;
        for (int i = 0; i < object->dlpi_phnum; ++i) {
          const ElfW(Phdr)& segment = object->dlpi_phdr[i];
          if (segment.p_type != PT_LOAD) continue;
          const ElfW(Addr) start = object->dlpi_addr + segment.p_vaddr;
          Extent& extent = wanted.extent;
          if (extent.to == 0) extent.from = start;  // segments are in ascending order
          extent.to = start + segment.p_memsz;
        }
        return 1;
      },
      &search);
  return search.extent;
}

// Returns the object's dynamic section, or null.
inline const ElfW(Dyn) * dynamic_section(const dl_phdr_info& object) {
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    if (object.dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    return reinterpret_cast<const ElfW(Dyn)*>(object.dlpi_addr + object.dlpi_phdr[i].p_vaddr);
  }
  return nullptr;
}

// Returns ld.so's name for the object that holds the address: "" for the program itself, null if no
// object holds it. Takes the loader's lock.
inline const char* object_name(const void* address) {
  struct Search {
    const void* address;
    const char* name;
  } search = {address, nullptr};
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void* data) {
        auto& wanted = *static_cast<Search*>(data);
        if (!holds(*object, wanted.address)) return 0;
        wanted.name = object->dlpi_name;
        return 1;
      },
      &search);
  return search.name;
}

}  // namespace cudaguard

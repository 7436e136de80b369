// SPDX-License-Identifier: Apache-2.0
// A snapshot of the process's mappings. It maps addresses to files, and allows reading an address
// that may be invalid without a fault. (process_vm_readv could read such an address, too, but
// strict seccomp filters kill for it.) Not thread-safe.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "shim/guard/elf/own_maps.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// In zeroed pages: what is not written takes no memory.
struct Maps {
  static constexpr unsigned kMost = 16384;
  unsigned count;
  Mapping at[kMost];
  char paths[1 << 20];
  char buffer[4096];

  /// Reads all mappings, once.
  void fill();

  /// Returns the mapping that holds the address, or null.
  const Mapping* find(uint64_t address) const;
  bool readable(uint64_t address, uint64_t size) const;
  /// Returns the first page of the next file after `last` (null: of the first file) whose name
  /// starts with `name`.
  const Mapping* next_object(const Mapping* last, const char* name) const;

  /// Copies an object from an address that may be invalid. Returns false if nothing was read.
  template <typename T>
  bool read(uint64_t address, T& to) const {
    if (!readable(address, sizeof to)) return false;
    memcpy(&to, reinterpret_cast<const void*>(address), sizeof to);
    return true;
  }
};

/// An object that ld.so has loaded and relocated, identified by the mapping of its first page.
class LoadedObject {
 public:
  /// Accepts only a file that is mapped as ld.so does it, because other code maps such files to
  /// read them.
  LoadedObject(const Maps& maps, const Mapping& first);

  /// Returns the address of a symbol that the object defines, or null.
  const void* symbol(const char* name) const;
  /// Returns the address of a function, which must be in an executable mapping of the file.
  const void* code(const char* name) const;
  /// True if the object is linked to a library of this name.
  bool needs(std::string_view file) const;

 private:
  const Maps& maps_;
  const Mapping& first_;
  uint64_t base_ = 0;
  const void* dynamic_ = nullptr;
};

}  // namespace cudaguard

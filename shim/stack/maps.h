// SPDX-License-Identifier: Apache-2.0
// What is mapped in this process at one moment: so that addresses get their files, and that what
// may not be there can be read without a fault. (process_vm_readv would do that too; strict seccomp
// filters kill for it.) Not thread-safe.
#pragma once

#include <cstdint>
#include <cstring>

#include "shim/elf/own_maps.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// Zeroed pages; what is not written to takes no memory.
struct Maps {
  static constexpr unsigned kMost = 16384;
  unsigned count;
  Mapping at[kMost];
  char paths[1 << 20];
  char buffer[4096];

  /// Reads all of them, once.
  void fill();

  /// The one that holds the address, or null.
  const Mapping* find(uint64_t address) const;
  bool readable(uint64_t address, uint64_t size) const;
  /// The first page of the next file behind `last` (null: of the first) whose name begins so.
  const Mapping* next_object(const Mapping* last, const char* name) const;

  /// Copies an object from an address that may be none. False: it was not read.
  template <typename T>
  bool read(uint64_t address, T& to) const {
    if (!readable(address, sizeof to)) return false;
    memcpy(&to, reinterpret_cast<const void*>(address), sizeof to);
    return true;
  }
};

/// An object that ld.so has loaded and made ready, known by the mapping of its first page.
class LoadedObject {
 public:
  /// Only what is mapped as ld.so does it: others map such files to look into them.
  LoadedObject(const Maps& maps, const Mapping& first);

  /// What it defines, or null.
  const void* symbol(const char* name) const;
  /// The same of a function, which is where its file is mapped executable.
  const void* code(const char* name) const;

 private:
  const Maps& maps_;
  const Mapping& first_;
  uint64_t base_ = 0;
  const void* dynamic_ = nullptr;
};

}  // namespace cudaguard

// SPDX-License-Identifier: Apache-2.0
// Reads /proc/self/maps to find the file that is mapped at an address. Takes no lock (dladdr takes
// the loader's, which a forked child may inherit locked), allocates nothing. Thread-safe,
// async-signal-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/guard/text/attempt.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// One line of /proc/self/maps.
struct Mapping {
  uint64_t from;
  uint64_t to;
  uint64_t offset;   ///< in the file
  const char* path;  ///< links resolved; not zero-terminated
  uint32_t length;   ///< of the path; 0 if there is no file
  bool readable;
  bool writable;
  bool executable;

  bool holds(uint64_t address) const { return address - from < to - from; }
  std::string_view file() const { return {path, length}; }
  CodePlace place(uint64_t address) const { return {file(), address - from + offset}; }
};

/// Reads mappings one after the other.
class MapsReader {
 public:
  /// `buffer` receives one read(2); the kernel returns at most 4096 bytes at once.
  MapsReader(int fd, char* buffer, size_t size) : fd_(fd), buffer_(buffer), size_(size) {}

  /// Reads the next mapping and copies its path to `path`. Returns false at the end.
  bool next(Mapping& to, char* path, size_t size);

 private:
  int byte();
  uint64_t hex();

  int fd_;
  char* buffer_;
  size_t size_;
  size_t at_ = 0;
  size_t filled_ = 0;
  bool ended_ = false;
};

/// Returns the file that is mapped at `address` and the offset in it. Copies the path into `path`.
/// The module is empty if nothing is mapped there, the mapping has no file, or /proc cannot be
/// read.
CodePlace place_of(const void* address, char* path, size_t size);

}  // namespace cudaguard

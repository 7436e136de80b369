// SPDX-License-Identifier: Apache-2.0
// Finds the file whose code is at an address of another process, and the file's unwind tables.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shim/launcher/unwind/process_view.h"

namespace cudaguard::launcher {

/// Code of a file that is mapped executable.
struct MappedCode {
  std::string_view file;  ///< as maps names it: "/lib/libc.so.6", "[vdso]"; empty if there is none
  uint64_t offset = 0;    ///< in the file
  uint64_t tables = 0;    ///< address of .eh_frame_hdr in the process; 0 if there is none
};

/// The mappings of a process at one moment. They change when the process loads a library, so use
/// one image for one stack only.
class ProcessImage {
 public:
  /// `maps` is the text of /proc/PID/maps.
  explicit ProcessImage(std::string maps);
  ProcessImage(const ProcessImage&) = delete;  // The mappings refer to the text.
  ProcessImage& operator=(const ProcessImage&) = delete;
  bool empty() const { return mappings_.empty(); }
  MappedCode find(WordReader& memory, uint64_t address) const;
  /// The bits that an address of this process can have. The other bits of an AArch64 return address
  /// may hold its signature (pointer authentication).
  uint64_t address_bits() const;

 private:
  struct Mapping {
    uint64_t from = 0;
    uint64_t to = 0;
    uint64_t offset = 0;
    bool executable = false;
    std::string_view file;
  };
  std::string text_;
  std::vector<Mapping> mappings_;  ///< sorted, as the kernel lists them
};

}  // namespace cudaguard::launcher

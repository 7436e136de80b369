// SPDX-License-Identifier: Apache-2.0
// Decides whether a message may be written to descriptor 2. A program that was started with
// descriptors closed has its own files at 0-2, and a message there destroys them. At load the guard
// does not inspect descriptors, because this would cost every process a system call. It must judge
// by what it sees at the CUDA attempt. Pure; thread-safe.
#pragma once

#include <cstdint>

namespace [[gnu::visibility("hidden")]] cudaguard {

struct Descriptor {
  enum class Kind : uint8_t { kClosed, kTerminalOrNull, kPipe, kSocket, kRegular, kOther };
  Kind kind = Kind::kClosed;
  uint64_t device = 0;  ///< st_dev
  uint64_t inode = 0;   ///< st_ino
  bool readable = false;
  bool writable = false;
  bool close_on_exec = false;  ///< never set on an inherited descriptor

  bool same_file(const Descriptor& other) const {
    return device == other.device && inode == other.inode;
  }
};

/// Returns true for terminals, the null device and pipes. For regular files and sockets, returns
/// true only with evidence that the standard descriptors were open at start. Otherwise descriptor 2
/// may be the program's own first file.
bool may_write_line(const Descriptor& in, const Descriptor& out, const Descriptor& err);

}  // namespace cudaguard

// SPDX-License-Identifier: Apache-2.0
// May a line be written to descriptor 2? A program that was started with descriptors closed has its
// own files at 0-2, and a line there destroys them. The guard looks at
// nothing when it is loaded (a system call in every process), so it must judge by what it sees at
// the touch. Pure; thread-safe.
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

/// Terminals, the null device and pipes: yes. Regular files and sockets: only with evidence that
/// the standard descriptors were open at start, so that descriptor 2 is not the program's own first
/// file.
bool may_write_line(const Descriptor& in, const Descriptor& out, const Descriptor& err);

}  // namespace cudaguard

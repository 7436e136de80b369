// SPDX-License-Identifier: Apache-2.0
#include "shim/guard/elf/own_maps.h"

#include "shim/guard/sys/system.h"

namespace cudaguard {

/// Returns the next byte, -1 at the end.
int MapsReader::byte() {
  if (at_ == filled_) {
    if (ended_) return -1;
    const long got = sys::read(fd_, buffer_, size_);
    ended_ = got <= 0;
    if (ended_) return -1;
    at_ = 0;
    filled_ = static_cast<size_t>(got);
  }
  return static_cast<unsigned char>(buffer_[at_++]);
}

/// Reads a hexadecimal number and the byte after it.
uint64_t MapsReader::hex() {
  uint64_t value = 0;
  for (;;) {
    const int c = byte();
    if (c >= '0' && c <= '9') {
      value = value * 16 + static_cast<uint64_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      value = value * 16 + static_cast<uint64_t>(c - 'a' + 10);
    } else {
      return value;
    }
  }
}

// "55d0c0a00000-55d0c0a21000 r-xp 00002000 08:01 1234      /path of/the file"
bool MapsReader::next(Mapping& to, char* path, size_t size) {
  to.from = hex();
  to.to = hex();
  to.readable = byte() == 'r';
  to.writable = byte() == 'w';
  to.executable = byte() == 'x';
  byte();
  byte();
  to.offset = hex();
  to.path = path;
  to.length = 0;
  bool in_path = false;
  for (int c = byte(); c != '\n' && c >= 0; c = byte()) {
    in_path = in_path || c == '/';
    if (in_path && to.length < size) path[to.length++] = static_cast<char>(c);
  }
  return !ended_;
}

CodePlace place_of(const void* address, char* path, size_t size) {
  const sys::File maps("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (!maps.ok()) return {};
  char buffer[1024] = {};  // the analyzer does not know that read(2) fills it
  MapsReader in(maps.fd(), buffer, sizeof buffer);
  const auto wanted = reinterpret_cast<uint64_t>(address);
  Mapping mapping;
  while (in.next(mapping, path, size)) {
    if (mapping.holds(wanted)) return mapping.place(wanted);
  }
  return {};
}

}  // namespace cudaguard

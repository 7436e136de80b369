// SPDX-License-Identifier: Apache-2.0
#include "shim/elf/own_maps.h"

#include "shim/sys/system.h"

namespace cudaguard {

namespace {

class MapsReader {
 public:
  explicit MapsReader(int fd) : fd_(fd) {}

  /// The next byte, -1 at the end.
  int next() {
    if (at_ == filled_) {
      const long got = sys::read(fd_, buffer_, sizeof buffer_);
      if (got <= 0) return -1;
      at_ = 0;
      filled_ = static_cast<size_t>(got);
    }
    return static_cast<unsigned char>(buffer_[at_++]);
  }

  /// A hexadecimal number; eats the byte after it.
  uint64_t hex() {
    uint64_t value = 0;
    for (;;) {
      const int c = next();
      if (c >= '0' && c <= '9') {
        value = value * 16 + static_cast<uint64_t>(c - '0');
      } else if (c >= 'a' && c <= 'f') {
        value = value * 16 + static_cast<uint64_t>(c - 'a' + 10);
      } else {
        ended_ = c < 0;
        return value;
      }
    }
  }

  bool ended() const { return ended_; }

 private:
  int fd_;
  bool ended_ = false;
  size_t at_ = 0;
  size_t filled_ = 0;
  char buffer_[1024] = {};  // the analyzer does not know that read(2) fills it
};

}  // namespace

CodePlace place_of(const void* address, char* path, size_t size) {
  const sys::File maps("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (!maps.ok()) return {};
  const auto wanted = reinterpret_cast<uint64_t>(address);
  MapsReader in(maps.fd());
  // "55d0c0a00000-55d0c0a21000 r-xp 00002000 08:01 1234      /path of/the file"
  for (;;) {
    const uint64_t from = in.hex();
    if (in.ended()) return {};
    const uint64_t to = in.hex();
    for (int c = in.next(); c != ' ' && c >= 0; c = in.next()) {
    }
    const uint64_t offset = in.hex();
    int c = in.next();
    size_t length = 0;
    bool in_path = false;
    for (; c != '\n' && c >= 0; c = in.next()) {
      if (c == '/') in_path = true;
      if (in_path && length < size) path[length++] = static_cast<char>(c);
    }
    if (c < 0) return {};
    if (wanted >= from && wanted < to) return {{path, length}, wanted - from + offset};
  }
}

}  // namespace cudaguard

// SPDX-License-Identifier: Apache-2.0
// A file for the launcher's readers of ELF, in memory.
#pragma once

#include <cstring>
#include <string>
#include <utility>

#include "shim/launcher/elf/elf_file.h"

namespace cudaguard::launcher {

class Memory : public Bytes {
 public:
  explicit Memory(std::string bytes) : bytes_(std::move(bytes)) {}
  uint64_t size() const override { return bytes_.size(); }
  bool read(uint64_t at, void* to, size_t count) const override {
    if (at > bytes_.size() || count > bytes_.size() - at) return false;
    memcpy(to, bytes_.data() + at, count);
    return true;
  }

 private:
  std::string bytes_;
};

}  // namespace cudaguard::launcher

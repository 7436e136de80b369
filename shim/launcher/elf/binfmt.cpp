// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/elf/binfmt.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

namespace cudaguard::launcher {

namespace {

/// What binfmt_misc knows a kind of file by: bytes at an offset, or its extension.
struct EmulatedKind {
  size_t offset = 0;
  std::string magic = {};
  std::string mask = {};
  std::string extension = {};
};

std::string bytes_of(std::string_view hexadecimal) {
  std::string bytes;
  for (; hexadecimal.size() >= 2; hexadecimal.remove_prefix(2)) {
    uint8_t byte = 0;
    std::from_chars(hexadecimal.data(), hexadecimal.data() + 2, byte, 16);
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

std::vector<EmulatedKind> emulated_kinds() {
  std::vector<EmulatedKind> kinds;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/sys/fs/binfmt_misc", none)) {
    EmulatedKind& kind = kinds.emplace_back();
    std::ifstream words(entry.path());
    std::string word;
    words >> word;
    if (word != "enabled") continue;
    while (words >> word) {
      if (word == "offset") words >> kind.offset;
      if (word == "extension") words >> kind.extension;
      if (word == "magic" && words >> word) kind.magic = bytes_of(word);
      if (word == "mask" && words >> word) kind.mask = bytes_of(word);
    }
  }
  return kinds;
}

}  // namespace

bool is_emulated(std::string_view head, std::string_view name) {
  static const std::vector<EmulatedKind> kinds = emulated_kinds();
  return std::ranges::any_of(kinds, [&](const EmulatedKind& kind) {
    if (!kind.extension.empty()) return name.ends_with(kind.extension);
    bool same = !kind.magic.empty();
    for (size_t i = 0; i < kind.magic.size(); ++i) {
      const size_t at = kind.offset + i;
      const int byte = at < head.size() ? head[at] : 0;
      const int mask = i < kind.mask.size() ? kind.mask[i] : 0xff;
      same = same && ((byte ^ kind.magic[i]) & mask) == 0;
    }
    return same;
  });
}

}  // namespace cudaguard::launcher

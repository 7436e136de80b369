// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/doctor/own_version.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "shim/launcher/elf/elf_file.h"

namespace cudaguard::launcher {

namespace {

using namespace std::string_view_literals;

/// More than any of our libraries has in front of its notes.
constexpr uint64_t kMostRead = uint64_t{1} << 20;
constexpr size_t kMostText = 64;

/// The content of the note with this type and owner. Found by these bytes: they are 8 and 16, and
/// nothing else in our libraries is like them.
std::string_view note(std::string_view content, std::string_view type_and_owner) {
  const size_t at = content.find(type_and_owner);
  uint32_t size = 0;
  if (at == std::string_view::npos || at < sizeof size) return {};
  memcpy(&size, content.data() + at - sizeof size, sizeof size);
  if (size > kMostText) return {};
  return content.substr(at + type_and_owner.size(), size);
}

}  // namespace

OwnVersion read_own_version(const std::string& path) {
  const FileBytes file(path);
  std::string content(static_cast<size_t>(std::min(file.size(), kMostRead)), '\0');
  if (!file.read(0, content.data(), content.size())) return {};
  OwnVersion result;
  constexpr std::string_view kOurs = "cudaguard ";
  const std::string_view text = note(content, "\1\0\0\0cudaguard\0\0\0"sv);
  if (text.starts_with(kOurs) && text.ends_with('\0')) {
    result.version = text.substr(kOurs.size(), text.size() - kOurs.size() - 1);
    if (result.version.find_first_not_of("0123456789.") != std::string::npos) return {};
  }
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (const char c : note(content, "\3\0\0\0GNU\0"sv)) {
    const auto byte = static_cast<unsigned char>(c);
    result.build += kDigits[byte >> 4];
    result.build += kDigits[byte & 15];
  }
  return result;
}

}  // namespace cudaguard::launcher

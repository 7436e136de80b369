// SPDX-License-Identifier: Apache-2.0
#include "policy/library.h"

#include "policy/text.h"

namespace cudaguard {

namespace {

/// "name" or "name.1" or "name.535.261.03": groups of digits, each after one dot.
bool is_version_of(std::string_view file, std::string_view name) {
  if (!file.starts_with(name)) return false;
  file.remove_prefix(name.size());
  bool digit_before = true;
  for (const char c : file) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && (c != '.' || !digit_before)) return false;
    if (digit && digit_before && &c == file.data()) return false;  // "libcuda.so1"
    digit_before = digit;
  }
  return digit_before;
}

}  // namespace

LibraryRequest classify(std::string_view request) {
  const std::string_view file = base_name(request);
  // Most requests end here, after one comparison.
  if (!file.starts_with("lib")) return {};
  if (is_version_of(file, "libcuda.so")) return {Library::kDriver, nullptr};
  if (is_version_of(file, "libnvidia-ml.so")) return {Library::kNvml, nullptr};
  for (const auto& row : kRefusedLibraries) {
    if (is_version_of(file, row.name)) return {Library::kRefused, &row};
  }
  return {};
}

}  // namespace cudaguard

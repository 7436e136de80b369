// SPDX-License-Identifier: Apache-2.0
#include "policy/library.h"

#include "policy/text.h"

namespace cudaguard {

namespace {

/// True for "name", "name.1" or "name.535.261.03": groups of digits, each after one dot.
bool is_version_of(std::string_view file, std::string_view name) {
  if (!file.starts_with(name)) return false;
  file.remove_prefix(name.size());
  while (!file.empty()) {
    if (file[0] != '.') return false;
    size_t digits = 0;
    while (1 + digits < file.size() && file[1 + digits] >= '0' && file[1 + digits] <= '9') ++digits;
    if (digits == 0) return false;
    file.remove_prefix(1 + digits);
  }
  return true;
}

/// Returns NAME for Debian's links in /etc/alternatives: "nvidia--NAME-x86_64-linux-gnu", or
/// "nvidia--NAME" outside a directory of an architecture.
std::string_view without_alternative(std::string_view file) {
  if (file.starts_with("nvidia--")) {
    file.remove_prefix(8);
  } else if (file.starts_with("glx--")) {
    file.remove_prefix(5);
  } else {
    return file;
  }
  if (!file.ends_with("-linux-gnu")) return file;
  file.remove_suffix(10);
  return head(file, file.rfind('-'));
}

}  // namespace

LibraryRequest classify(std::string_view request) {
  if (!may_be_ours(request)) return {};
  const std::string_view file = without_alternative(base_name(request));
  if (!file.starts_with("lib")) return {};
  if (is_version_of(file, "libcuda.so")) return {Library::kDriver, nullptr};
  if (is_version_of(file, "libnvidia-ml.so")) return {Library::kNvml, nullptr};
  if (is_version_of(file, "libc.so") || is_version_of(file, "libdl.so")) {
    return {Library::kLibc, nullptr};
  }
  for (const auto& row : kRefusedLibraries) {
    if (is_version_of(file, row.name())) return {Library::kRefused, &row};
  }
  return {};
}

}  // namespace cudaguard

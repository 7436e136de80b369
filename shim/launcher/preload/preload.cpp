// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/preload/preload.h"

#include <algorithm>

#include "policy/text.h"

namespace cudaguard::launcher {

bool is_own_library(std::string_view entry) {
  const std::string_view name = base_name(entry);
  if (name == "libcudaguard.so" || name.starts_with("libcudaguard-")) return true;
  return (name == "libcuda.so.1" || name == "libnvidia-ml.so.1") &&
         base_name(directory_of(entry)) == "cudaguard";
}

bool is_sanitizer_runtime(std::string_view path) {
  const std::string_view name = base_name(path);
  for (const std::string_view kind : {"asan", "tsan", "ubsan", "lsan", "hwasan"}) {
    if (name.starts_with("lib" + std::string(kind) + ".so")) return true;
    if (name.starts_with("libclang_rt." + std::string(kind))) return true;
  }
  return false;
}

std::vector<std::string> preload_entries(const char* list) {
  std::vector<std::string> entries;
  std::string_view rest = list == nullptr ? "" : list;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find_first_of(" :"), rest.size());
    if (end > 0) entries.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return entries;
}

std::string preload_list(const char* before, const std::vector<std::string>& first,
                         const std::vector<std::string>& own) {
  std::vector<std::string> entries = first;
  std::vector<std::string> others;
  for (const std::string& entry : preload_entries(before)) {
    if (is_own_library(entry)) continue;
    if (std::find(entries.begin(), entries.end(), entry) != entries.end()) continue;
    // A user who preloads a sanitizer's runtime knows that it must come first.
    (is_sanitizer_runtime(entry) ? entries : others).push_back(entry);
  }
  entries.insert(entries.end(), own.begin(), own.end());
  entries.insert(entries.end(), others.begin(), others.end());
  std::string result;
  for (const std::string& entry : entries) result += (result.empty() ? "" : ":") + entry;
  return result;
}

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
// Computes LD_PRELOAD: keeps foreign entries and removes older ones of ours. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cudaguard::launcher {

/// True if the name is ours, of any installation: the guard, a proxy, a null driver.
bool is_own_library(std::string_view entry);

/// True for a sanitizer's runtime, which must come before every other library: libasan.so.8.
bool is_sanitizer_runtime(std::string_view path);

/// The entries of LD_PRELOAD. `list` is its value, or null.
std::vector<std::string> preload_entries(const char* list);

/// Returns the new value. `before` is the old one, or null. `first`: sanitizer runtimes. `own`: the
/// guard and the libraries that belong to it, in order.
std::string preload_list(const char* before, const std::vector<std::string>& first,
                         const std::vector<std::string>& own);

/// True if LD_PRELOAD can carry the path.
inline bool can_be_preloaded(std::string_view path) {
  return !path.empty() && path.find_first_of(" :") == std::string_view::npos;
}

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
// LD_PRELOAD: other people's entries stay, older ones of ours go. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cudaguard::launcher {

/// Ours by its name, of any installation: the guard, a proxy, a null driver.
bool is_own_library(std::string_view entry);

/// A sanitizer's runtime, which must come before every other library: libasan.so.8.
bool is_sanitizer_runtime(std::string_view path);

/// What LD_PRELOAD names; `list`: its value, or null.
std::vector<std::string> preload_entries(const char* list);

/// The new value. `before`: the old one, or null. `first`: sanitizer runtimes; `own`: the guard and
/// what belongs to it, in their order.
std::string preload_list(const char* before, const std::vector<std::string>& first,
                         const std::vector<std::string>& own);

/// Can LD_PRELOAD carry it?
inline bool can_be_preloaded(std::string_view path) {
  return !path.empty() && path.find_first_of(" :") == std::string_view::npos;
}

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
// Finds our own files and computes LD_PRELOAD, which keeps foreign entries and no older ones of
// ours.
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

/// Our files, found relative to this executable, never by a search.
struct Installation {
  std::string guard;             ///< .../lib/libcudaguard.so
  std::string null_driver_cuda;  ///< .../lib/cudaguard/libcuda.so.1
  std::string null_driver_nvml;  ///< .../lib/cudaguard/libnvidia-ml.so.1
  std::string proxy_cuda;        ///< .../lib/cudaguard/libcudaguard-driver.so
  std::string proxy_nvml;        ///< .../lib/cudaguard/libcudaguard-nvml.so
  std::string probe;             ///< .../lib/cudaguard/cudaguard-probe
};

/// Our files as they are or should be, without a look at them.
Installation expected_installation();

/// Throws Refusal if the guard is missing, or if LD_PRELOAD cannot carry its path.
Installation find_installation();

}  // namespace cudaguard::launcher

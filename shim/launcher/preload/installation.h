// SPDX-License-Identifier: Apache-2.0
// Finds our own files relative to this executable, never by a search.
#pragma once

#include <string>

namespace cudaguard::launcher {

struct Installation {
  std::string guard;             ///< .../lib/libcudaguard.so
  std::string null_driver_cuda;  ///< .../lib/cudaguard/libcuda.so.1
  std::string null_driver_nvml;  ///< .../lib/cudaguard/libnvidia-ml.so.1
  std::string proxy_cuda;        ///< .../lib/cudaguard/libcudaguard-driver.so
  std::string proxy_nvml;        ///< .../lib/cudaguard/libcudaguard-nvml.so
};

/// Throws Refusal if the guard is missing, or if LD_PRELOAD cannot carry its path.
Installation find_installation();

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
// Where our own files are: beside this executable, never by a search.
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

/// Throws Refusal where the guard is missing, or ld.so could not be told its path.
Installation find_installation();

}  // namespace cudaguard::launcher

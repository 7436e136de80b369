// SPDX-License-Identifier: Apache-2.0
// Copies of the driver or NVML in the folders that a file's own run path names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cudaguard::launcher {

/// The folders of a DT_RUNPATH or DT_RPATH: $ORIGIN is the folder of `file`, and $LIB both of what
/// it can be.
std::vector<std::string> run_path_folders(std::string_view run_path, const std::string& file);

/// libcuda.so*, libnvidia-ml.so* and so on in a folder, in the order of their names.
std::vector<std::string> drivers_in(const std::string& folder);

}  // namespace cudaguard::launcher

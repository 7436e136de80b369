// SPDX-License-Identifier: Apache-2.0
// run --observe: the launcher stays, and says afterwards who used CUDA.
#pragma once

#include <string>

#include "shim/launcher/child/variables.h"
#include "shim/launcher/fence/fence.h"

namespace cudaguard::launcher {

/// Starts `path`, waits for it and all that it starts, prints the summary, and ends as the program
/// ended. `report`: the user's, as CUDAGUARD_REPORT names it; may be empty. `fence`: around
/// this process. Throws Refusal.
[[noreturn]] void observe(const std::string& path, char** arguments, Variables& variables,
                          const std::string& report, const Fence& fence);

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "shim/launcher/child/variables.h"
#include "shim/launcher/fence/fence.h"
#include "shim/launcher/options.h"

namespace cudaguard::launcher {

/// Everything that execve needs.
struct Prepared {
  std::string path;                ///< for execve; empty for --print without a program
  std::string report;              ///< the user's, as in CUDAGUARD_REPORT; may be empty
  Fence fence;                     ///< installed on this process if the user asked for one
  std::vector<std::string> files;  ///< the program's files: a script, its interpreter
  std::vector<char*> arguments;    ///< for execve; may point into `files`
};

/// Sets all that the program needs in `variables` (policy, presets, LD_PRELOAD), installs the fence
/// and prints warnings. Throws Refusal if the program cannot be guarded or is not found.
Prepared prepare(const Options& options, Variables& variables);

/// Becomes the program. Returns only for --print (0). Throws Refusal.
int run(const Options& options, const char* const* environment);

}  // namespace cudaguard::launcher

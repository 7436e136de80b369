// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "shim/launcher/child/variables.h"
#include "shim/launcher/fence/fence.h"
#include "shim/launcher/options.h"

namespace cudaguard::launcher {

/// What is about to be started.
struct Prepared {
  std::string path;                ///< for execve; empty: no program, with --print
  std::string report;              ///< the user's, as CUDAGUARD_REPORT names it; may be empty
  Fence fence;                     ///< around this process, where one was asked for
  std::vector<std::string> files;  ///< of the program: a script, its interpreter
  std::vector<char*> arguments;    ///< for execve; may point into `files`
};

/// Sets all that the program needs in `variables`: policy, presets, LD_PRELOAD; puts up the fence.
/// Says what may surprise. Throws Refusal where the program cannot be guarded, or not found.
Prepared prepare(const Options& options, Variables& variables);

/// Becomes the program. Returns only for --print (0); throws Refusal.
int run(const Options& options, const char* const* environment);

}  // namespace cudaguard::launcher

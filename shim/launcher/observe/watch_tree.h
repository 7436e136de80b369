// SPDX-License-Identifier: Apache-2.0
// Starts a program and watches it with all that it starts, for `run --observe` and `verify`.
#pragma once

#include <string>
#include <vector>

#include "shim/launcher/child/variables.h"
#include "shim/launcher/fence/fence.h"
#include "shim/launcher/findings/model.h"

namespace cudaguard::launcher {

struct TreeToWatch {
  std::string path;  ///< for execve
  char** arguments = nullptr;
  Variables* variables = nullptr;
  std::string report;          ///< the user's, as CUDAGUARD_REPORT names it; may be empty
  Fence fence;                 ///< around this process
  bool counts = false;         ///< each process writes a start record, and is looked at
  bool trace = false;          ///< by ptrace, at every execve
  std::vector<int> kept = {};  ///< descriptors that this process needs after the program's end
};

/// Returns when all have ended, or somebody does not want to wait for those that the program has
/// left behind. Without `counts`, `watched.tree` has what was left and the doubts alone. Throws
/// Refusal if the program cannot be started or watched. If it throws after the program's end, for
/// lack of memory, `watched` has the program's number and status.
void watch_tree(const TreeToWatch& wanted, WatchedTree& watched);

}  // namespace cudaguard::launcher

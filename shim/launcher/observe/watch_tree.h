// SPDX-License-Identifier: Apache-2.0
// Starts a program and watches it with all that it starts, for `run --observe` and `verify`.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shim/launcher/child/variables.h"
#include "shim/launcher/fence/fence.h"
#include "shim/launcher/observe/keeper.h"

namespace cudaguard::launcher {

struct WatchedTree;

/// A program that is ready for execve.
struct Prepared {
  std::string path;                ///< empty for --print without a program
  std::string report;              ///< the user's, as in CUDAGUARD_REPORT; may be empty
  Fence fence;                     ///< installed on this process if the user asked for one
  std::shared_ptr<Keeper> keeper;  ///< of the fence; null if it has no listener
  std::vector<std::string> files;  ///< the program's files: a script, its interpreter
  std::vector<char*> arguments = {};
  /// The arguments of /bin/sh, which runs a script without "#!" line; may point into `files`. Empty
  /// if the program is no such script.
  std::vector<char*> by_shell = {};
  std::string unguarded;                                ///< why it is not guarded; empty if it is
  std::optional<std::chrono::milliseconds> grace = {};  ///< the value of --grace
};

/// Becomes the program. Returns an errno value if that fails. The kernel may know a file that has
/// no "#!" line (binfmt_misc), so the shell comes second.
int become(const Prepared& program, Variables& variables);

// These functions return when all processes have ended, or when the user ends the wait. They throw
// Refusal if the program cannot be started or watched. If memory runs out after the program's end,
// they throw, and `watched` has the program's id and status.

/// Gives the program a report file, and reads its records. `watched.tree` gets only the remaining
/// processes and the doubts.
void record_tree(const Prepared& program, Variables& variables, WatchedTree& watched);

/// Each process reports its start and its CUDA attempts to Fence::listener, and is examined.
/// Without a listener, the guards' records are read, and `watched.tree.doubts` has the reason.
/// `kept` are descriptors that this process needs after the program's end.
void watch_tree(const Prepared& program, Variables& variables, const std::vector<int>& kept,
                WatchedTree& watched);

}  // namespace cudaguard::launcher

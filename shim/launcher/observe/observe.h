// SPDX-License-Identifier: Apache-2.0
// run --observe: the launcher waits for the program and then reports which processes used CUDA.
#pragma once

#include "shim/launcher/observe/watch_tree.h"

namespace cudaguard::launcher {

/// Starts the program, waits for it and its descendants, and prints the summary. Then ends with the
/// program's exit status. Throws Refusal.
[[noreturn]] void observe(const TreeToWatch& wanted);

}  // namespace cudaguard::launcher

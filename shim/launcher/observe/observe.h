// SPDX-License-Identifier: Apache-2.0
// run --observe: the launcher stays, and says afterwards who used CUDA.
#pragma once

#include "shim/launcher/observe/watch_tree.h"

namespace cudaguard::launcher {

/// Starts the program, waits for it and all that it starts, prints the summary, and ends as the
/// program ended. Throws Refusal.
[[noreturn]] void observe(const TreeToWatch& wanted);

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "shim/launcher/child/variables.h"
#include "shim/launcher/commands/plan.h"
#include "shim/launcher/observe/watch_tree.h"

namespace cudaguard::launcher {

/// Sets all that the program needs in `variables` (policy, presets, LD_PRELOAD), installs the fence
/// and prints warnings. Throws Refusal if the program cannot be guarded or is not found.
Prepared set_up(const Plan& plan, Variables& variables);

}  // namespace cudaguard::launcher

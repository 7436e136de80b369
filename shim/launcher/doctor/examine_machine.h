// SPDX-License-Identifier: Apache-2.0
// The machine's half of doctor: driver libraries, device nodes, kernel module, what cuInit says,
// the environment's mistakes. Starts nothing of the user's; makes no device node.
#pragma once

#include "shim/launcher/child/variables.h"
#include "shim/launcher/doctor/rows.h"
#include "shim/launcher/fence/fence.h"
#include "shim/launcher/preload/installation.h"

namespace cudaguard::launcher {

/// "machine" of doctor.schema.json. `code`, doctor's exit code: 0 becomes 1 where there is a
/// problem. `fence`: what can be had here.
Row examine_machine(const Installation& installation, const Variables& variables,
                    const Fence& fence, int& code);

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
// The machine's half of doctor: driver libraries, device nodes, kernel module, what cuInit says,
// the environment's mistakes. Starts nothing of the user's; makes no device node.
#pragma once

#include "shim/launcher/child/variables.h"
#include "shim/launcher/doctor/rows.h"
#include "shim/launcher/preload/installation.h"

namespace cudaguard::launcher {

/// "machine" of doctor.schema.json. `code`, doctor's exit code: 0 becomes 1 where there is a
/// problem.
Row examine_machine(const Installation& installation, const Variables& variables, int& code);

}  // namespace cudaguard::launcher

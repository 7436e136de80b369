// SPDX-License-Identifier: Apache-2.0
// cudaguard report: what the records of finished jobs say.
#pragma once

#include "shim/launcher/options.h"

namespace cudaguard::launcher {

/// Returns the exit code: 0. Throws Refusal.
int report(const Options& options);

}  // namespace cudaguard::launcher

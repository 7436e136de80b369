// SPDX-License-Identifier: Apache-2.0
// cudaguard report: summarises the records of finished jobs.
#pragma once

#include "shim/launcher/options.h"

namespace cudaguard::launcher {

/// Returns the exit code: 0. Throws Refusal.
int report(const Options& options);

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "shim/launcher/options.h"

namespace cudaguard::launcher {

/// Becomes the program. Returns only for --print (0); throws Refusal.
int run(const Options& options, const char* const* environment);

}  // namespace cudaguard::launcher

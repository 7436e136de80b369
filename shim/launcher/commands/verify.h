// SPDX-License-Identifier: Apache-2.0
// cudaguard verify: runs a program under FORCE_CPU and reports whether any process touched CUDA.
#pragma once

#include "shim/launcher/options.h"

namespace cudaguard::launcher {

/// Returns the exit code: 0 clean, 1 touched, 2 untouched but the program failed. Throws Refusal.
int verify(const Options& options, const char* const* environment);

}  // namespace cudaguard::launcher

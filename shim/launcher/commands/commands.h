// SPDX-License-Identifier: Apache-2.0
// The subcommands run, verify and report. Each returns the launcher's exit code, and throws
// Refusal.
#pragma once

#include "shim/launcher/child/variables.h"
#include "shim/launcher/observe/watch_tree.h"
#include "shim/launcher/options.h"

namespace cudaguard::launcher {

/// Sets all that the program needs in `variables` (policy, presets, LD_PRELOAD), installs the fence
/// and prints warnings. Throws Refusal if the program cannot be guarded or is not found.
Prepared prepare(const Options& options, Variables& variables);

/// Becomes the program. Returns only for --print (0).
int run(const Options& options, const char* const* environment);

/// Runs a program under FORCE_CPU and reports whether any process touched CUDA. Returns 0 if none
/// did, 1 if one did, 2 if the program failed, 3 if the result is incomplete.
int verify(const Options& options, const char* const* environment);

/// Summarises the records of finished jobs.
int report(const Options& options);

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
// What the subcommands do. Each function returns the launcher's exit code, and throws Refusal.
#pragma once

#include "shim/launcher/commands/plan.h"
#include "shim/launcher/options.h"

namespace cudaguard::launcher {

/// Becomes the program, or starts and watches it. The exit code of kAttempts is the program's own.
/// That of kProcesses is 0 if no process asked for CUDA, 1 if one did, 2 if the program failed, and
/// 3 if the result is incomplete.
int carry_out(const Plan& plan, const char* const* environment);

/// Summarises the records of finished jobs.
int report(const Options& options);

/// Changes /etc/ld.so.preload, or checks /etc/cudaguard.conf.
int whole_system(const Options& options);

}  // namespace cudaguard::launcher

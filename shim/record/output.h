// SPDX-License-Identifier: Apache-2.0
// Lines and records on their way out. Writing is one write(2) per line or record; nothing is
// allocated, errno is unchanged. Thread-safe, async-signal-safe.
#pragma once

#include "policy/message.h"
#include "shim/state/process.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// Says what is wrong with the configuration, if that was not said yet.
void say_complaints(Process& process);

/// Writes the line, where one is wanted, and the record, where a report is named. `touch` may lack
/// its caller.
void write_out(Process& process, Touch& touch, const void* caller, bool line_wanted);

}  // namespace cudaguard

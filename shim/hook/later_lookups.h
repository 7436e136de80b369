// SPDX-License-Identifier: Apache-2.0
// The guard's exports are there for what was loaded at start, which ld.so has bound to them. A
// library that is loaded later may have *variables* of these names (cuew, slang-rhi and other
// loaders of the driver do): bound to ours, it would write into the guard's code.
#pragma once

#include "shim/state/process.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// Takes out of later look-ups what the policy says, once, unless something that is loaded refers
/// to one of them, or has the real driver or NVML with it. Before the first dlopen goes on.
void leave_later_lookups(const Process& here);

}  // namespace cudaguard

// SPDX-License-Identifier: Apache-2.0
// The guard's exports serve the libraries that are loaded at start, because ld.so has bound them to
// these exports. A library that is loaded later may have *variables* of these names, as cuew,
// slang-rhi and other loaders of the driver do. If ld.so bound such a variable to our export, the
// library would write into the guard's code.
#pragma once

#include "shim/guard/state/process.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// Hides the exports that the policy names from later look-ups. Call this before the first dlopen
/// goes on; later calls do nothing. Hides nothing if a loaded object may refer to one of these
/// exports or brings the real driver or NVML.
void leave_later_lookups(const Process& process);

}  // namespace cudaguard

// SPDX-License-Identifier: Apache-2.0
// Touches by programs that are linked to the driver, NVML or the runtime. To be called in tail
// position: these have unwind tables, the exports need none.
#pragma once

#include "shim/state/process.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// Records that `api` was denied.
int denied(Process& here, const char* api, const void* caller, int answer);
/// Records that `api` was allowed and that there is no driver. Returns 100.
int no_driver(Process& here, const char* api, const void* caller);

}  // namespace cudaguard

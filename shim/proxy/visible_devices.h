// SPDX-License-Identifier: Apache-2.0
// Enforces the allow-list at the real cuInit.
#pragma once

#include "shim/proxy/driver_state.h"
#include "shim/proxy/real_library.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// Redirects the driver's getenv. Called once, before any function of the driver.
void bind_visible_devices(const Process& process, const RealLibrary& real);
/// Returns false if the list cannot be enforced. A message reports this, and FORCE_CPU applies.
bool list_is_enforced(Process& process);

/// Calls the real cuInit(0), and checks that it found what the list allows and nothing else. The
/// caller holds the process's lock.
Result init_inside_list(Process& process, const void* caller);

}  // namespace cudaguard

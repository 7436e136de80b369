// SPDX-License-Identifier: Apache-2.0
// The allow-list, enforced at the real cuInit.
#pragma once

#include "shim/proxy/driver_state.h"
#include "shim/proxy/real_library.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// Once, before anything is called.
void bind_visible_devices(const Process& here, const RealLibrary& real);
/// False: it cannot be. Then that is said, and FORCE_CPU applies.
bool list_is_enforced(Process& here);

/// The real cuInit(0), and whether it found what the list allows and nothing else. The caller holds
/// the process's lock.
Result init_inside_list(Process& here, const void* caller);

}  // namespace cudaguard

// SPDX-License-Identifier: Apache-2.0
// The guard, as a companion sees it. Thread-safe, lock-free.
#pragma once

#include "shim/through/services.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// Null: there is no guard of this build in the process; nothing may be let through then.
const Services* find_guard();

/// The guard that has loaded this companion: it is asked from now on. False: of another build.
bool adopt_guard(const Services* guard);

}  // namespace cudaguard

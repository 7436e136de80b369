// SPDX-License-Identifier: Apache-2.0
// The guard, as a companion sees it. Thread-safe, lock-free.
#pragma once

#include "shim/companion/services.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// Null: there is no guard of this build in the process; nothing may be let through then.
const Services* find_guard();

}  // namespace cudaguard

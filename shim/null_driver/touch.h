// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cudaguard {

// Tells the guard, if there is one in this process, that `caller` called `api`. Lock-free, no
// allocation; without a guard it does nothing.
[[gnu::visibility("hidden")]] void touch(const char* api, const void* caller);

}  // namespace cudaguard

// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cudaguard {

// Reports to the guard, if this process has one, that `caller` called `api`. Lock-free,
// allocation-free.
[[gnu::visibility("hidden")]] void report_attempt(const char* api, const void* caller);

}  // namespace cudaguard

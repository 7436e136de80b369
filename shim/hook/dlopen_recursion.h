// SPDX-License-Identifier: Apache-2.0
// The guard's protection against another hook of dlopen that calls ours in a loop.
#pragma once

namespace [[gnu::visibility("hidden")]] cudaguard {

/// Returns true if the request must go to libc's dlopen, because the next hook would call us again.
/// Such a hook finds dlopen by a versioned look-up of RTLD_DEFAULT. Without the guard, this look-up
/// skips the hook's own definition, which has no version, and finds libc's. With the guard it finds
/// ours, and we would call the hook again. If the hook makes a tail call, its request looks like
/// the program's. The loop is then recognised by repetition: the same request comes from the same
/// place many times while nothing is loaded.
bool is_recursive_dlopen(const char* function, const char* name, const void* caller);

}  // namespace cudaguard

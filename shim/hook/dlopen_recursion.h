// SPDX-License-Identifier: Apache-2.0
// Another hook of dlopen, behind ours.
#pragma once

namespace [[gnu::visibility("hidden")]] cudaguard {

/// Such a hook may look up RTLD_DEFAULT: bare that passes over its own definition, which has no
/// version, and finds libc's; here it finds ours, and we go to the hook again. Where it calls in
/// tail position nothing tells that from a program's call but that it does not end: when the same
/// is asked for in the same place again and again, and nothing is loaded, it goes to libc's.
bool is_recursive_dlopen(const char* function, const char* name, const void* caller);

}  // namespace cudaguard

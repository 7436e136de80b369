// SPDX-License-Identifier: Apache-2.0
// Touches: counted, and the first of each kind in a process written down as its configuration says.
// Writing is one write(2) per line or record; nothing is allocated, errno is unchanged.
// Thread-safe, async-signal-safe.
#pragma once

#include <cstdint>

#include "shim/guard/process.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// A denied request. `key` names its kind: a constant, compared by address and kept. `object` is
/// what dlopen was asked for, or null; `caller` the return address. Does nothing under OFF.
void record_touch(Process& process, const char* key, const char* object, const void* caller);

/// Says which stand-in cannot be used, once per process and `bit`.
void say_missing_standin(Process::Said bit, const char* file, const char* why);

}  // namespace cudaguard

// SPDX-License-Identifier: Apache-2.0
// The frames of CPython, 3.6 to 3.14, read without its lock: they are this thread's own, which sits
// in a call of ours, so that they cannot change. They keep their code alive, and that its strings,
// which are immutable. No count of references is touched. Not thread-safe.
#pragma once

#include <cstdint>

#include "policy/message.h"
#include "shim/stack/maps.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// Room for the names.
using PythonNames = char[32768];

/// Returns null, or why there are none.
const char* read_python(const Maps& maps, Stack& to, PythonNames& names);

}  // namespace cudaguard

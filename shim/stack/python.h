// SPDX-License-Identifier: Apache-2.0
// Reads the frames of CPython from 3.6 on without the GIL. The frames belong to this thread, which
// is inside a call of ours, so they cannot change. A frame keeps its code object alive, and the
// code object its strings, which are immutable. No reference count is changed. Not thread-safe.
#pragma once

#include <cstdint>

#include "policy/message.h"
#include "shim/stack/maps.h"
#include "shim/stack/owners.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// In zeroed pages.
struct PythonRoom {
  char names[32768];  ///< of files and functions
  Owners::Room owners;
};

/// Returns null, or why there are no Python frames.
const char* read_python(const Maps& maps, Stack& to, PythonRoom& room);

}  // namespace cudaguard

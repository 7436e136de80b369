// SPDX-License-Identifier: Apache-2.0
// Reads the frames of CPython from 3.6 on without the GIL. The frames belong to this thread, which
// is inside a call of ours, so they cannot change. A frame keeps its code object alive, and the
// code object its strings, which are immutable. No reference count is changed. Not thread-safe.
#pragma once

#include <cstdint>

#include "shim/guard/stack/hash.h"
#include "shim/guard/stack/maps.h"
#include "shim/guard/stack/owners.h"
#include "shim/guard/stack/state.h"
#include "shim/guard/text/attempt.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// In zeroed pages.
struct PythonRoom {
  char names[32768];  ///< of files and functions
  Owners::Room owners;
};

/// Returns null, or why there are no Python frames. Sets `frames` if there are some.
const char* read_python(const Maps& maps, Stack& to, PythonRoom& room, PythonFrames& frames);

/// Adds this thread's frames to the hash: where each of them is in its code, and the name of its
/// file. Reads them directly, so the code must be the one that read_python() has checked. Returns
/// false if the frames may be there but cannot be read in this way.
bool add_python(const PythonFrames& frames, Hash& hash);

}  // namespace cudaguard

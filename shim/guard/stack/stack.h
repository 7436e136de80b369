// SPDX-License-Identifier: Apache-2.0
// The call site for the message and the record of a CUDA attempt: the return address and this
// thread's Python frames. There is no native unwinding: libgcc's unwinder takes a lock that a
// forked child may inherit locked. It also reads any address to which a return address on a
// coroutine's stack points. Thread-safe, async-signal-safe.
#pragma once

#include "shim/guard/stack/maps.h"
#include "shim/guard/stack/python.h"
#include "shim/guard/text/attempt.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// In zeroed pages.
struct StackRoom {
  Maps maps;
  Stack stack;
  PythonRoom python;
  char file[256];
};

/// Sets the caller and the stack of `attempt`, which then points into `room`, and sets `frames` for
/// call_of().
void read_stack(StackRoom& room, const void* caller, PythonFrames& frames, Attempt& attempt);

/// Returns a hash by which a call from the same place is recognised, without a look at
/// /proc/self/maps. Two places have different hashes; one place may have many. 0: a look is needed.
uint64_t call_of(const char* api, const void* caller, const PythonFrames& frames);

}  // namespace cudaguard

// SPDX-License-Identifier: Apache-2.0
// The call site for the message and the record of a CUDA attempt: the return address and this
// thread's Python frames. There is no native unwinding: libgcc's unwinder takes a lock that a
// forked child may inherit locked. It also reads any address to which a return address on a
// coroutine's stack points. Thread-safe, async-signal-safe.
#pragma once

#include "policy/message.h"
#include "shim/stack/maps.h"
#include "shim/stack/python.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// In zeroed pages.
struct StackRoom {
  Maps maps;
  Stack stack;
  PythonRoom python;
};

/// Sets the caller and the stack of `attempt`, which then points into `room`.
void read_stack(StackRoom& room, const void* caller, Attempt& attempt);

}  // namespace cudaguard

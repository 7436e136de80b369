// SPDX-License-Identifier: Apache-2.0
// Who called, for the line and the record of a touch: this thread's frames as far as they can be
// had without a lock, a fault or a library that is not there. Thread-safe, async-signal-safe.
#pragma once

#include "policy/message.h"
#include "shim/stack/maps.h"
#include "shim/stack/native.h"
#include "shim/stack/python.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// Room for them: zeroed pages.
struct Stacks {
  Maps maps;
  NativeStack native;
  PythonStack python;
};

/// Fills the stack and the caller in. `caller` is a return address on this thread's stack.
void read_stacks(Stacks& room, const void* caller, Touch& touch);

}  // namespace cudaguard

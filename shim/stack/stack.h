// SPDX-License-Identifier: Apache-2.0
// Who called, for the line and the record of a touch: this thread's frames as far as they can be
// had without a lock, a fault or a library that is not there. Thread-safe, async-signal-safe.
#pragma once

#include "policy/message.h"
#include "shim/stack/maps.h"
#include "shim/stack/native.h"
#include "shim/stack/python.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// Room for it: zeroed pages.
struct StackRoom {
  Maps maps;
  Unwinder unwinder;
  Stack stack;
  PythonNames names;
};

/// The first half: true where the unwinder is to be called, from a function that can be unwound:
/// room.unwinder.backtrace(collect_frame, &room.unwinder).
bool begin_stack(StackRoom& room, const void* caller);
/// Fills the stack and the caller in.
void end_stack(StackRoom& room, Touch& touch);

}  // namespace cudaguard

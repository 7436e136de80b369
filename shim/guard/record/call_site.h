// SPDX-License-Identifier: Apache-2.0
// The code that a message names: the user's line, the library and the program. Reading it takes
// 100 us or more, so read it only for a message that will be printed, or once per process.
// Thread-safe, async-signal-safe.
#pragma once

#include "shim/guard/record/facts.h"
#include "shim/guard/stack/stack.h"
#include "shim/guard/state/process.h"
#include "shim/guard/sys/system.h"
#include "shim/guard/text/attempt.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// The call site of `caller`, a return address, in this thread.
class CallSite {
 public:
  CallSite(Process& process, const void* caller);
  /// Has no caller if there is no memory.
  const Attempt& attempt() const { return attempt_; }

 private:
  struct Room {
    StackRoom stack;
    char path[4352];
    ProgramRoom program;
  };
  sys::Mapped<Room> room_;
  Attempt attempt_;
};

/// Writes "ppo.py:159 through libfoo.so", zero-terminated. The text is a copy, so it outlives the
/// code.
void copy_call_site(Process& process, const void* caller, char (&to)[kMostSite]);

}  // namespace cudaguard

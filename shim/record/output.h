// SPDX-License-Identifier: Apache-2.0
// Lines and records on their way out. Writing is one write(2) per line or record; nothing is
// allocated, errno is unchanged. Thread-safe, async-signal-safe.
#pragma once

#include "policy/message.h"
#include "shim/record/record.h"
#include "shim/state/process.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// What is to be written of a touch or an event.
struct Output {
  Touch touch;  ///< lacks its stack at first, and perhaps its caller
  bool line = false;
  bool heard = false;  ///< a launcher has answered the announcement
};

/// Takes a place in the list of what was touched. False: it, or an equal name at another address (a
/// null driver in another namespace), is there already.
bool is_new(Process& process, const char* touched);
/// False as well where nobody wants to know.
bool is_new(Process& process, const Event& event);

/// False: nothing is to be written. Says what is wrong with the configuration, if that was not said
/// yet.
bool prepare(Process& process, const Event& event, Output& output);
/// Writes the line, where one is wanted, and the record, where a report is named or a launcher
/// listens.
void write_out(Process& process, const void* caller, Output& output);

}  // namespace cudaguard

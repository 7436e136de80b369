// SPDX-License-Identifier: Apache-2.0
// Writes messages and records. Each message or record is one write(2). Nothing is allocated, errno
// is unchanged. Thread-safe, async-signal-safe.
#pragma once

#include "shim/guard/record/record.h"
#include "shim/guard/state/process.h"
#include "shim/guard/text/attempt.h"
#include "shim/guard/text/beacon.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// What is to be written about a CUDA attempt or an event.
struct Output {
  Attempt attempt;  ///< has no stack at first, and perhaps no caller
  bool line = false;
  Beacon beacon = Beacon::kStart;  ///< what is announced
  bool heard = false;              ///< a launcher has answered the announcement
};

/// Sends the start beacon, and writes the start record if a report is named. Call it only if one is
/// wanted. The arguments are those of a constructor, and the variables are read already.
void report_start(char** words, char** variables);

/// Returns the event's key in Reported; 0 if wants_events() is false. Reports mistakes in
/// the configuration, once.
uint64_t key_of(Process& process, const Event& event);

/// Describes the event, except for its stack, and announces it to a launcher. An attempt must be
/// announced before anything marks it as known, because verify counts the announcements.
void announce(const Event& event, Output& output);
/// Tells the launcher that the announced attempt is known.
void withdraw(const void* caller, const Output& output);
/// Decides about the message. Returns false if nothing is to be written. Reports mistakes in the
/// configuration, once.
bool prepare(Process& process, Output& output);
/// Writes the message if one is wanted, and the record if a report is named or a launcher listens.
void write_out(Process& process, const void* caller, Output& output);

}  // namespace cudaguard

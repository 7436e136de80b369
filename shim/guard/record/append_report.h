// SPDX-License-Identifier: Apache-2.0
// Writes a record to where CUDAGUARD_REPORT or a rule's report= says: a file, the user's file of
// the day in a spool directory, or the machine's log. Each record is one write(2) or one datagram.
// No call waits. Nothing is allocated, errno is unchanged. Thread-safe, async-signal-safe.
#pragma once

#include <string_view>

#include "shim/guard/text/attempt.h"
#include "shim/guard/text/record.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

struct ReportRoom {
  char path[4352];
  bool has_file;  ///< `path` is that of the file in the spool directory
  char record[kMaxRecord];
};

/// Returns 0, an errno value, or another value that put_report_error() takes. The record is lost
/// then, and nothing else.
int append_to_report(std::string_view report, const ProcessFacts& facts, const Attempt& attempt,
                     ReportRoom& room);

}  // namespace cudaguard

// SPDX-License-Identifier: Apache-2.0
// The records that a guarded process may write, and the names of their files. Only formats; writes
// nothing. Pure; thread-safe, async-signal-safe, allocation-free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "policy/text.h"
#include "policy/text/attempt.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// One record in a report file.
inline constexpr size_t kMaxRecord = 65536;

/// Returns the longest path of /proc/self/cgroup, which is the most specific one. (Version 2 has
/// one line, "0::/system.slice/x.service". Version 1 has a path for each controller, and a batch
/// system divides some of them.)
std::string_view cgroup_of(std::string_view lines);

/// The values for the placeholders in the name of a report.
struct ReportName {
  uint32_t pid = 0;       ///< for "%p"
  uint32_t uid = 0;       ///< for "%u": the effective id; a user name would need a look-up
  std::string_view host;  ///< for "%h"; a slash becomes "_"
};
/// Writes `path` with each placeholder replaced.
void put_report_name(Text& out, std::string_view path, const ReportName& name);

/// Writes one line of JSON. `limit` is the longest that may be written in one piece, in bytes. The
/// long fields are cut to fit, and "cut" names them.
void write_record(Text& out, const ProcessFacts& process, const Attempt& attempt, size_t limit);

}  // namespace cudaguard

// SPDX-License-Identifier: Apache-2.0
// The records that a guarded process may write, and the names of their files. Only formats; writes
// nothing. Pure; thread-safe, async-signal-safe, allocation-free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "policy/text.h"
#include "shim/guard/text/attempt.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// The field `v`.
inline constexpr uint32_t kRecordVersion = 1;
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
/// Writes "1000-2026-11-27.jsonl", the name of a file in a spool directory. The day is UTC's.
void put_spool_name(Text& out, uint32_t uid, uint64_t seconds);

/// Writes "<14>Nov 27 03:16:53 cudaguard[7]: ", with which syslog() would begin the message. The
/// time is UTC's.
void put_syslog_start(Text& out, uint32_t pid, uint64_t seconds);

// The types of the fields (record_fields.inc). kMost: the most bytes of a value, besides the long
// text in it.
namespace field {

struct Number {
  static constexpr size_t kMost = 10;
  uint32_t value = 0;
};
struct Count {
  static constexpr size_t kMost = 20;
  int64_t value = -1;  ///< -1: none
};
struct Time {
  static constexpr size_t kMost = 27;
  uint64_t seconds = 0;       ///< since 1970-01-01 UTC
  uint32_t microseconds = 0;  ///< 0..999999
};
struct Flag {
  static constexpr size_t kMost = 4;
  bool value = false;  ///< false: none
};
/// One of a few constants, at most 12 bytes long.
struct Word {
  static constexpr size_t kMost = 14;
  std::string_view value;  ///< empty: none
};
struct Text {
  static constexpr size_t kMost = 2;
  std::string_view value;  ///< empty: none
};
struct TextOrEmpty {
  static constexpr size_t kMost = 2;
  std::string_view value;
};
struct Words {
  static constexpr size_t kMost = 2;
  std::string_view value;  ///< as /proc/self/cmdline: each ends in a zero byte
};
struct Address {
  static constexpr size_t kMost = 21;
  const CodePlace* value = nullptr;
};
/// A line of Python code, as code_line() names it.
struct Line {
  static constexpr size_t kMost = 33;
  PythonFrame value;  ///< without a file: none
};
struct Frames {
  static constexpr size_t kMost = 2;
  const Stack* value = nullptr;
};
/// The names of the fields that were cut, which the writer knows.
struct Names {
  static constexpr size_t kMost = 2;
};

}  // namespace field

/// What a record says about its process.
struct ProcessFacts {
#define RECORD_PROCESS(type, name, ...) field::type name = {};
#include "shim/guard/text/record_fields.inc"
};

/// Writes one line of JSON. `limit` is the longest that may be written in one piece, in bytes. The
/// long fields are cut to fit, and "cut" names them.
void write_record(Text& out, const ProcessFacts& process, const Attempt& attempt, size_t limit);

}  // namespace cudaguard

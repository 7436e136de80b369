// SPDX-License-Identifier: Apache-2.0
// Every sentence and every record that a guarded process may write. Formats only; writes nothing.
// Pure; thread-safe, async-signal-safe, allocation-free.
#pragma once

#include <cstdint>
#include <string_view>

#include "policy/config.h"
#include "policy/text.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// One line is one write; longer ones would interleave on a pipe (POSIX PIPE_BUF on Linux).
inline constexpr size_t kMaxLine = 4096;
/// One record in a report file.
inline constexpr size_t kMaxRecord = 65536;

/// A place in the code: the file that is mapped there and the offset in that file.
struct CodePlace {
  std::string_view module;  ///< full path; empty: not a file
  uint64_t offset = 0;      ///< bytes from the start of the file
};

/// Somebody asked for the driver.
struct Touch {
  std::string_view api;     ///< "cuInit", "nvmlInit_v2", "dlopen"
  std::string_view object;  ///< for dlopen: the name or path that was asked for
  CodePlace caller;
};

struct ProcessFacts {
  uint32_t pid = 0;
  uint32_t parent_pid = 0;
  uint32_t thread_id = 0;
  uint64_t seconds = 0;       ///< since 1970-01-01 UTC
  uint32_t microseconds = 0;  ///< 0..999999
  std::string_view executable;
  std::string_view arguments;  ///< as /proc/self/cmdline: each ends in a zero byte
};

/// "cudaguard[7]: no CUDA here (policy FORCE_CPU; asked by libfoo.so); CUDAGUARD_POLICY=OFF lifts
/// it". Under CUDAGUARD_LOG=all it names the call; in a privileged process there is no variable to
/// advise.
void write_denied(Text& out, uint32_t pid, const Config& config, const Touch& touch);

void write_complaint(Text& out, uint32_t pid, const Complaint& complaint);

/// `file` is the stand-in that cannot be used, `why` a clause: "is missing", "is cut short".
void write_missing_standin(Text& out, uint32_t pid, std::string_view file, std::string_view why);

/// `error` is an errno value.
void write_report_failed(Text& out, uint32_t pid, std::string_view path, int error);

/// One line of JSON. `limit` is the longest that may be written in one piece, in bytes; the long
/// fields (argv, then exe) are cut to fit, and "cut" names them.
void write_record(Text& out, const ProcessFacts& process, const Touch& touch,
                  std::string_view decision, size_t limit);

}  // namespace cudaguard

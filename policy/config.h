// SPDX-License-Identifier: Apache-2.0
// The configuration: what CUDAGUARD_* variables mean. Pure functions over strings: no I/O, no
// globals, no allocation; thread-safe, async-signal-safe, callable before constructors.
// The rule for bad values: they never guard less than was asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace [[gnu::visibility("hidden")]] cudaguard {

enum class Policy : uint8_t {
  kForceCpu,  ///< there is no CUDA device; the driver is never entered
  kOff,       ///< the guard does nothing
};

enum class Log : uint8_t {
  kDeny,  ///< one line per process, at its first denied touch
  kOff,   ///< no line
  kAll,   ///< one line per distinct touch
};

/// The environment as the process has it. A null pointer is an unset variable.
struct Environment {
  const char* policy = nullptr;       ///< CUDAGUARD_POLICY
  const char* log = nullptr;          ///< CUDAGUARD_LOG
  const char* report = nullptr;       ///< CUDAGUARD_REPORT
  bool privileged = false;            ///< AT_SECURE: the environment is somebody else's, ignore it
  const Policy* inherited = nullptr;  ///< of the process that this one was forked from
};

/// A value that was not understood: everything that one line about it needs.
struct Complaint {
  std::string_view variable;
  std::string_view value;
  std::string_view accepted;
  std::string_view instead;  ///< what applies now
};

/// Longest report path, in bytes without the final zero (Linux: PATH_MAX - 1).
inline constexpr size_t kMaxReportPath = 4095;

struct Config {
  Policy policy = Policy::kForceCpu;
  Log log = Log::kDeny;
  bool privileged = false;
  std::string_view report;  ///< points into the environment; empty: no report
  Complaint complaints[3];
  size_t complaint_count = 0;
};

Config parse_config(const Environment& environment);

/// Is there a line for a touch of a new kind? `first`: the first of the process.
bool wants_line(Log log, bool first);

std::string_view name_of(Policy policy);

}  // namespace cudaguard

// SPDX-License-Identifier: Apache-2.0
// The configuration: what CUDAGUARD_* variables mean. Pure functions over strings: no I/O, no
// globals, no allocation; thread-safe, async-signal-safe, callable before constructors.
// The rule for bad values: they never guard less than was asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "policy/device_list.h"
#include "policy/rules.h"
#include "policy/variables.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

enum class Log : uint8_t {
  kOff,    ///< no line
  kError,  ///< what went wrong; none for a denied touch
  kDeny,   ///< the default: one line per process, at its first denied touch
  kAll,    ///< one line per distinct touch
};

/// A value that was not understood: everything that one line about it needs.
struct Complaint {
  std::string_view variable;
  std::string_view value;     ///< empty: it is not about the value
  std::string_view accepted;  ///< empty: the value is good, but has no effect
  std::string_view instead;   ///< what applies now
};

/// Longest report path, in bytes without the final zero (Linux: PATH_MAX - 1).
inline constexpr size_t kMaxReportPath = 4095;
/// Longest allow-list, in bytes: 64 full UUIDs and room to spare.
inline constexpr size_t kMaxVisibleDevices = 6143;
/// At most one about each variable.
inline constexpr size_t kMostComplaints = std::size(kVariables);

struct Config {
  Policy policy = Policy::kForceCpu;
  Log log = Log::kOff;
  bool privileged = false;
  bool in_run = false;              ///< inside a `cudaguard run`, but for one with OFF
  bool fenced = false;              ///< and behind its --fence, which nothing lifts
  bool by_option = false;           ///< the allow-list is the one that `run --gpus` was given
  bool children_by_option = false;  ///< CUDAGUARD_CHILDREN is of `run --children=cpu`
  /// Of a FORCE_CPU that nobody asked for by name: the cause, as a clause; else empty.
  std::string_view because;
  std::string_view report;           ///< points into the Environment; empty: no report
  std::string_view visible_devices;  ///< the allow-list, syntax checked; empty: every GPU
  ListError list_error;              ///< of a list that was given and is wrong (FORCE_CPU applies)
  std::string_view bad_list;         ///< that list, cut if it is too long
  bool children_cpu = false;         ///< CUDAGUARD_CHILDREN=FORCE_CPU
  bool forked_child = false;         ///< of a process that had it, too
  uint32_t root = 0;                 ///< CUDAGUARD_ROOT, a process id; 0: not given
  /// The PID namespace that the number is of, as readlink shows it: "pid:[4026531836]". Empty: not
  /// given, points into the environment.
  std::string_view root_namespace;
  Complaint complaints[kMostComplaints];
  size_t complaint_count = 0;
};

/// A process under CUDAGUARD_CHILDREN=FORCE_CPU. The number alone does not tell the root from a
/// process with the same one in a PID namespace of its own.
struct Place {
  uint32_t pid = 0;
  std::string_view pid_namespace;  ///< asked only where the root's is known
};

/// Config::because of a process that is one of the children.
inline constexpr char kIsChild[] = "CUDAGUARD_CHILDREN=FORCE_CPU";

/// CUDAGUARD_CHILDREN: does this process narrow to FORCE_CPU?
bool is_child(const Config& config, const Place& place);
/// The same process afterwards: FORCE_CPU, and why.
void narrow_to_cpu(Config& config, std::string_view because);

Config parse_config(const Environment& environment);

/// Is there a line for a touch of a new kind? `first`: the first of the process.
bool wants_line(Log log, bool first);

std::string_view name_of(Policy policy);

}  // namespace cudaguard

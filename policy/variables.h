// SPDX-License-Identifier: Apache-2.0
// What follows from the rows in variables.inc, for the guard, the launcher and doctor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace [[gnu::visibility("hidden")]] cudaguard {

/// The environment that the process was started with: a pointer for each row, null if the variable
/// is unset.
struct Environment {
#define VARIABLE(id, member, ...) const char* member = nullptr;
#include "policy/variables.inc"
};

enum class Variable : uint8_t {
#define VARIABLE(id, ...) id,
#include "policy/variables.inc"
};

/// Returns the largest of these sizes.
constexpr size_t longest(std::initializer_list<size_t> sizes) {
  size_t result = 0;
  for (const size_t size : sizes) result = size > result ? size : result;
  return result;
}

/// A row has no pointers to its texts (see Names), so each column has room for its longest one.
struct VariableRow {
  char name[longest({
#define VARIABLE(id, member, name, ...) sizeof name,
#include "policy/variables.inc"
  })];
  /// Words in the order of their enumeration, or a description of the value.
  char accepted[longest({
#define VARIABLE(id, member, name, accepted, ...) sizeof accepted,
#include "policy/variables.inc"
  })];
  /// What applies if the value is not accepted.
  char instead[longest({
#define VARIABLE(id, member, name, accepted, instead, ...) sizeof instead,
#include "policy/variables.inc"
  })];
  const char* Environment::*place;  ///< the guard's copy
};

/// Longest report path, in bytes without the final zero (Linux: PATH_MAX - 1).
inline constexpr size_t kMaxReportPath = 4095;
/// The report that sends each record to the machine's log.
inline constexpr char kSyslog[] = "syslog:";
/// A report whose name ends in a slash is a spool directory, which has a file for each user and
/// day.
constexpr bool is_spool(std::string_view report) { return report.ends_with('/'); }
/// Longest allow-list, in bytes: 64 full UUIDs and room to spare.
inline constexpr size_t kMaxVisibleDevices = 6143;

/// Longest CUDAGUARD_RULES, in bytes.
inline constexpr size_t kMaxRules = 4095;

/// The variables that the guard reads.
inline constexpr VariableRow kVariables[] = {
#define VARIABLE(id, member, name, accepted, instead, ...) \
  {name, accepted, instead, &Environment::member},
#include "policy/variables.inc"
};

/// The first word of CUDAGUARD_PRESETS under `run --fence`; no variable begins with its letter.
inline constexpr char kFenceMark[] = "fence";
/// A word of CUDAGUARD_PRESETS inside `run --children=cpu`.
inline constexpr char kChildrenMark[] = "children";
/// A word of CUDAGUARD_PRESETS inside `run --if-healthy` if the driver is not healthy.
inline constexpr char kUnhealthyMark[] = "unhealthy";
/// The mark before the list at the end of CUDAGUARD_PRESETS inside `run --gpus LIST`: "gpus=2,5".
/// Names may come before it.
inline constexpr char kGpusMark[] = "gpus=";

/// The machine's file does not count for the probe, by which the launcher asks the driver. So a
/// user must not be able to load other code into it: none of these may be set, but LD_PRELOAD to
/// this.
inline constexpr char kLoadingVariables[][22] = {"LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT",
                                                 "CUDA_INJECTION64_PATH"};
inline constexpr char kProbePreload[] = "libnvidia-ml.so.1";
/// True if this value of one of these variables loads other code into the probe.
constexpr bool loads_other_code(std::string_view name, std::string_view value) {
  return !value.empty() && (name != kLoadingVariables[0] || value != kProbePreload);
}

/// Read only when a process starts; "1". It has no row, because a row would be in the guard's file.
inline constexpr char kHello[] = "CUDAGUARD_HELLO";

/// Only doctor reads this variable, so it is not in the guard's file.
inline constexpr VariableRow kDoctorTimeout = {"CUDAGUARD_DOCTOR_TIMEOUT", "1 to 3600 seconds", "",
                                               nullptr};

constexpr const VariableRow& row_of(Variable variable) {
  return kVariables[static_cast<size_t>(variable)];
}

/// A value that was not understood, with everything that the message about it needs.
struct Complaint {
  std::string_view variable;
  std::string_view value;     ///< empty if the complaint is not about the value
  std::string_view accepted;  ///< empty if the value is good but has no effect
  std::string_view instead;   ///< what applies now
};

/// A variable's line in docs/cli.md and in the manual. These texts are not in the guard's
/// file.
struct VariableText {
  const char* name;
  const char* help;        ///< if it ends in ":", the words follow
  const char* words;       ///< that are accepted
  const char* by_default;  ///< the value that an unset variable has
};

/// A row's line.
constexpr VariableText described(Variable variable, const char* help, const char* by_default) {
  const VariableRow& row = row_of(variable);
  return {row.name, help, row.accepted, by_default};
}
/// The variables that users see.
inline constexpr VariableText kVariableTexts[] = {
#define VARIABLE(id, member, name, accepted, instead, help, by_default) \
  described(Variable::id, help, by_default),
#include "policy/variables.inc"
    {kHello, "if 1, each process records its start; verify sets this", "", "none"},
    {kDoctorTimeout.name, "how long doctor waits for the driver:", kDoctorTimeout.accepted, "10"},
};

/// `get` returns a variable's value by its name, null if it is unset.
template <typename Get>
Environment read_environment(Get get) {
  Environment environment;
  for (const VariableRow& row : kVariables) environment.*row.place = get(row.name);
  return environment;
}

}  // namespace cudaguard

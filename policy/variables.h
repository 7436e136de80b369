// SPDX-License-Identifier: Apache-2.0
// The variables: one row each for the guard, the launcher and doctor, and one text each for
// docs/variables.md and the manual, which scripts/generate-options writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace [[gnu::visibility("hidden")]] cudaguard {

/// The environment that the process was started with. A null pointer is an unset variable.
struct Environment {
  const char* policy = nullptr;
  const char* log = nullptr;
  const char* report = nullptr;
  const char* visible_devices = nullptr;
  const char* children = nullptr;
  const char* root = nullptr;
  const char* presets = nullptr;
  bool privileged = false;  ///< AT_SECURE: ignore the environment, which another user controls
  bool forked = false;      ///< the parent, which forked this process, had read it, too
};

struct VariableRow {
  const char* name;
  const char* accepted;  ///< words in the order of their enumeration, or a description of the value
  const char* instead;   ///< what applies if the value is not accepted
  const char* Environment::*place;  ///< the guard's copy
};

enum class Variable : uint8_t {
  kPolicy,
  kVisibleDevices,
  kChildren,
  kRoot,
  kLog,
  kReport,
  kPresets,
};

/// Longest report path, in bytes without the final zero (Linux: PATH_MAX - 1).
inline constexpr size_t kMaxReportPath = 4095;
/// Longest allow-list, in bytes: 64 full UUIDs and room to spare.
inline constexpr size_t kMaxVisibleDevices = 6143;

/// The variables that the guard reads.
inline constexpr VariableRow kVariables[] = {
    {"CUDAGUARD_POLICY", "FORCE_CPU, VALIDATE, CLAMP, OFF", "FORCE_CPU applies",
     &Environment::policy},
    // A list has its own explanations (ListError).
    {"CUDAGUARD_VISIBLE_DEVICES", "",
     "has no effect under FORCE_CPU; to use the list: CUDAGUARD_POLICY=VALIDATE",
     &Environment::visible_devices},
    {"CUDAGUARD_CHILDREN", "FORCE_CPU", "FORCE_CPU for all but the root", &Environment::children},
    {"CUDAGUARD_ROOT", "a process id", "no process is the root", &Environment::root},
    {"CUDAGUARD_LOG", "off, error, deny, all", "deny applies", &Environment::log},
    {"CUDAGUARD_REPORT", "a path of at most 4095 bytes", "nothing is recorded",
     &Environment::report},
    // The launcher sets this to the names of the other variables that it has set. It removes these
    // later.
    {"CUDAGUARD_PRESETS", "", "", &Environment::presets},
};

/// The first word of CUDAGUARD_PRESETS under `run --fence`; no variable begins with its letter.
inline constexpr char kFenceMark[] = "fence";
/// A word of CUDAGUARD_PRESETS inside `run --children=cpu`.
inline constexpr char kChildrenMark[] = "children";
/// The mark before the list at the end of CUDAGUARD_PRESETS inside `run --gpus LIST`: "gpus=2,5".
/// Names may come before it.
inline constexpr char kGpusMark[] = "gpus=";

/// Read only when a process starts; "1". It has no row, because a row would be in the guard's file.
inline constexpr char kHello[] = "CUDAGUARD_HELLO";

/// Only doctor reads this variable, so it is not in the guard's file.
inline constexpr VariableRow kDoctorTimeout = {"CUDAGUARD_DOCTOR_TIMEOUT", "seconds, 1 to 3600", "",
                                               nullptr};

constexpr const VariableRow& row_of(Variable variable) {
  return kVariables[static_cast<size_t>(variable)];
}

static_assert(row_of(Variable::kPolicy).place == &Environment::policy);
static_assert(row_of(Variable::kVisibleDevices).place == &Environment::visible_devices);
static_assert(row_of(Variable::kChildren).place == &Environment::children);
static_assert(row_of(Variable::kRoot).place == &Environment::root);
static_assert(row_of(Variable::kLog).place == &Environment::log);
static_assert(row_of(Variable::kReport).place == &Environment::report);
static_assert(row_of(Variable::kPresets).place == &Environment::presets);

/// A value that was not understood, with everything that the message about it needs.
struct Complaint {
  std::string_view variable;
  std::string_view value;     ///< empty if the complaint is not about the value
  std::string_view accepted;  ///< empty if the value is good but has no effect
  std::string_view instead;   ///< what applies now
};

/// A variable's line in docs/variables.md and in the manual. These texts are not in the guard's
/// file.
struct VariableText {
  const char* name;
  const char* help;        ///< if it ends in ":", the words follow
  const char* words;       ///< that are accepted
  const char* by_default;  ///< the value that an unset variable has
  const char* instead;     ///< of a value that is not accepted
};

/// The variables that users see. `help` says what the variable sets.
constexpr VariableText described(Variable variable, const char* help, const char* by_default) {
  const VariableRow& row = row_of(variable);
  const bool named = *row.accepted != '\0';
  return {row.name, help, row.accepted, by_default, named ? row.instead : ""};
}
inline constexpr VariableText kVariableTexts[] = {
    described(Variable::kPolicy, "the CUDA policy:", "FORCE_CPU"),
    described(Variable::kVisibleDevices,
              "the GPUs that a program can see, such as 2,5 or GPU-8932f937", "all"),
    described(Variable::kChildren, "the policy of all processes but the root:", "as for the root"),
    described(Variable::kRoot, "the root, which CUDAGUARD_CHILDREN does not restrict:", "none"),
    described(Variable::kLog, "which messages are printed on stderr:", "deny"),
    described(Variable::kReport, "the file to which records are appended:", "none"),
    {kHello, "whether each process reports its start; verify sets this to 1", "", "none", ""},
    described(Variable::kPresets, "the names of the presets; cudaguard run sets this", "none"),
    {kDoctorTimeout.name, "how long doctor waits for the driver:", kDoctorTimeout.accepted, "10",
     ""},
};

/// `get` returns a variable's value by its name, null if it is unset.
template <typename Get>
Environment read_environment(Get get) {
  Environment environment;
  for (const VariableRow& row : kVariables) environment.*row.place = get(row.name);
  return environment;
}

}  // namespace cudaguard

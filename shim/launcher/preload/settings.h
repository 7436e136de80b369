// SPDX-License-Identifier: Apache-2.0
// Merges the settings of a command line and the environment: the command line first, then
// environment, then default.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "policy/policies.h"
#include "shim/launcher/child/variables.h"
#include "shim/launcher/options.h"

namespace cudaguard::launcher {

/// What the launcher itself needs of the guard's configuration.
struct GuardConfig {
  Policy policy = Policy::kForceCpu;     ///< VALIDATE if only a rule allows CUDA
  std::string report;                    ///< empty: no report
  bool silent = false;                   ///< CUDAGUARD_LOG=off
  bool errors_only = false;              ///< the user wants errors only, or nothing
  std::string left_out;                  ///< a warning: GPUs that CUDA_VISIBLE_DEVICES leaves out
  std::vector<std::string> about_rules;  ///< what check_rules() returned
};

/// Sets the CUDAGUARD_* variables and, under FORCE_CPU, all presets. Throws Refusal for values that
/// the guard would reject, and for options that contradict each other. `gpus`: how many this
/// machine has; 0: not known.
GuardConfig settle(const GuardSettings& settings, Variables& variables, size_t gpus = 0);

/// Removes an outer run's presets: with them, `run --gpus` in a `run --cpu` would find no GPU.
void take_back_presets(Variables& variables);

/// Returns a message for each CUDAGUARD_* variable that cudaguard does not read, such as a misspelt
/// one.
std::vector<std::string> unknown_variables(Variables& variables);

/// Tells the guard that it runs under a fence, so that its message does not advise a fence.
void mark_fenced(Variables& variables);

/// CUDAGUARD_ROOT for this process: its id and, if /proc has it, the PID namespace of that id.
std::string name_of_this_process();
/// True if CUDAGUARD_ROOT names this process.
bool is_first_process(const Variables& variables);

}  // namespace cudaguard::launcher

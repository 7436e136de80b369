// SPDX-License-Identifier: Apache-2.0
// What the options and the environment ask for together: flag, then environment, then default.
#pragma once

#include <string>
#include <vector>

#include "policy/config.h"
#include "shim/launcher/child/variables.h"
#include "shim/launcher/options.h"

namespace cudaguard::launcher {

/// Sets the CUDAGUARD_* variables and, under FORCE_CPU, the presets. Returns what the guard will
/// make of them; its strings are `variables`' own. Throws Refusal for what the guard would complain
/// about, and for options that contradict each other.
Config settle(const Options& options, Variables& variables);

/// A line for each variable CUDAGUARD_* that cudaguard does not read, such as a misspelt one.
std::vector<std::string> unknown_variables(Variables& variables);

/// Behind a fence: by this the guard knows what its line must not advise.
void mark_fenced(Variables& variables);

/// CUDAGUARD_ROOT for this process: its number, and where /proc says it the PID namespace that the
/// number is of.
std::string root_name();
/// Does CUDAGUARD_ROOT mean this process?
bool is_root(const Variables& variables);

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
// The rules of `run --rule` and CUDAGUARD_RULES (policy/process_rules.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shim/launcher/child/variables.h"

namespace cudaguard::launcher {

/// Throws Refusal if a rule of --rule has a mistake, with the sentence that the guard prints.
/// Returns a warning for each rule that matches less than it seems to.
std::vector<std::string> check_rules(const std::vector<std::string>& rules);

/// True if CUDAGUARD_RULES is set.
bool has_rules(const Variables& variables);

/// The values of report= in CUDAGUARD_RULES.
std::vector<std::string> reports_of(const Variables& variables);

/// The policy and the list of the variables, as a rule that matches each process.
std::string rule_for_all(const Variables& variables);

/// What an outer run allows, as lists of rules that always decide.
std::string rules_of_outer_run(const Variables& variables);

/// True if a process may get CUDA by these rules of CUDAGUARD_RULES.
bool may_allow_cuda(std::string_view rules);

}  // namespace cudaguard::launcher

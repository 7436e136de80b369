// SPDX-License-Identifier: Apache-2.0
// Finds rules without a mistake that do less than they seem to do, by this machine's programs,
// users and directories. The guard does not know these, and obeys the rules.
#pragma once

#include <string>
#include <vector>

#include "policy/process_rules.h"

namespace cudaguard::launcher {

/// Each is a clause: `program="/usr/bin/smi" does not exist`. Of a rule without a mistake.
std::vector<std::string> warnings_about(const ProcessRule& rule);
/// The same, but not of what the rule does.
std::vector<std::string> warnings_about_conditions(const ProcessRule& rule);

/// True if the rule matches every process, so that no rule before it decides.
bool matches_all(const ProcessRule& rule);

/// True if /etc/cudaguard.conf.d has files of rules.
bool has_more_files();

}  // namespace cudaguard::launcher

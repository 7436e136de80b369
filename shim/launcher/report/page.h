// SPDX-License-Identifier: Apache-2.0
// One self-contained HTML page: the process tree over time, who touched what when, the stacks.
#pragma once

#include <string>

#include "shim/launcher/report/model.h"

namespace cudaguard::launcher {

/// Of a verify run.
std::string page(const Verdict& verdict);
/// Of records alone. `title`: what was read, "3 files of /var/log/cudaguard".
std::string page(const Findings& findings, const std::string& title);

}  // namespace cudaguard::launcher

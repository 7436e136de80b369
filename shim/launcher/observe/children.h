// SPDX-License-Identifier: Apache-2.0
// This process's children, as /proc shows them.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>

namespace cudaguard::launcher {

/// None where there is no /proc.
std::set<pid_t> children_of_this_process();

/// Is it a child of this process, or one's child? False where nobody can tell (any more).
bool descends_from_this_process(pid_t pid);

/// "sleep (12), cat (13)"; of many the first few.
std::string names_of(const std::set<pid_t>& processes);

}  // namespace cudaguard::launcher

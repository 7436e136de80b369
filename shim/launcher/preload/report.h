// SPDX-License-Identifier: Apache-2.0
// Will the guard be able to write its report?
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cudaguard::launcher {

/// Throws Refusal where the report cannot be appended to, or is one of `programs`. Writes nothing
/// and makes no file. `by_option`: --report named it, not the environment.
void check_report(std::string_view report, bool by_option,
                  const std::vector<std::string>& programs);

/// The report of the process `pid`: "%p" in the name stands for that number.
std::string report_path(std::string report, int pid);

}  // namespace cudaguard::launcher

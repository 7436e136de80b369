// SPDX-License-Identifier: Apache-2.0
// Will the guard be able to write its report?
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cudaguard::launcher {

struct ReportCheck {
  bool by_option = false;  ///< --report named it, not the environment
  bool strict = false;     ///< refuse what this user may not write
};
/// Throws Refusal if the report cannot be appended to, or is one of `programs`. If this user may
/// not write it, warns and returns false unless `strict`. Writes nothing and makes no file.
bool check_report(std::string_view report, const ReportCheck& check,
                  const std::vector<std::string>& programs);

/// The report of the process `pid`, with %p, %u and %h replaced: the user is this one.
std::string report_path(std::string_view report, int pid);

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
// The block that verify ends with. Pure, but that it reads the files which the stacks name.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "shim/launcher/findings/model.h"
#include "shim/launcher/print/symbols.h"

namespace cudaguard::launcher {

/// Lines of at most 100 columns, of what a terminal can show. Long stacks are cut.
std::string text_of_verdict(const Verdict& verdict, Symbols& symbols);

/// "PASS: none of 3 processes touched CUDA"
std::string result_line(const Verdict& verdict);

/// "CUDA or NVML"
std::string denied_names(const std::set<Asked>& denied);

/// "ended with exit code 3", "was killed by signal 9 (Killed)". `status`: as waitpid gives it.
std::string text_of_end(int status);

}  // namespace cudaguard::launcher

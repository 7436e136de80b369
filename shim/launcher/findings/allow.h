// SPDX-License-Identifier: Apache-2.0
// --allow: which attempts do not fail the run. A pattern is a glob for a process, or "lib:",
// "module:" or "line:" and a glob for the code that made the attempt. Pure.
#pragma once

#include <string>
#include <vector>

#include "shim/launcher/findings/model.h"

namespace cudaguard::launcher {

/// Throws Refusal for an empty pattern.
void check_patterns(const std::vector<std::string>& patterns);

/// True if a pattern matches a word of the command, its base name, or the whole command.
bool is_allowed(const std::vector<std::string>& patterns, const std::string& command);

/// True if a pattern matches the calling library, the user's line, or a Python module between.
bool is_code_allowed(const std::vector<std::string>& patterns, const CallSite& toucher);

}  // namespace cudaguard::launcher

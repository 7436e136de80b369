// SPDX-License-Identifier: Apache-2.0
// The table at the end. Pure.
#pragma once

#include <string>

#include "shim/launcher/findings/model.h"

namespace cudaguard::launcher {

/// Lines of at most 100 columns, where names allow. Processes that cannot be told apart in it are
/// one row, with all their numbers below. `left`: processes that were not waited for, or empty.
/// `idle`: that the program has not used what was kept for it, or empty.
std::string summary(const Findings& findings, const std::string& left, const std::string& idle);

/// Lines about what is no record, or only a piece of one; may be empty.
std::string what_was_left_out(const Findings& findings);

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
// Which of the touches fail. Pure.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "shim/launcher/findings/model.h"

namespace cudaguard::launcher {

/// --deny's words, "init,nvml" in each; none: init. Throws Refusal for another one.
std::set<DriverApi> denied_words(const std::vector<std::string>& lists);

/// Sets what the model says is set by decide(). A process that was not guarded and has the driver
/// counts as one that touched CUDA: nobody was there to refuse. NVML alone is no CUDA, as with
/// --deny.
void decide(Verdict& verdict);

}  // namespace cudaguard::launcher

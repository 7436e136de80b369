// SPDX-License-Identifier: Apache-2.0
// Decides which of the CUDA attempts fail the run. Pure.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "shim/launcher/findings/model.h"

namespace cudaguard::launcher {

/// The words of --deny, each list like "init,nvml". No list means init. Throws Refusal otherwise.
std::set<DriverApi> denied_words(const std::vector<std::string>& lists);

/// Sets the members of the model that say "by decide()". An unguarded process that has the driver
/// counts as one that touched CUDA, because no guard could refuse the attempt. NVML alone does not
/// count as CUDA, as with --deny.
void decide(Verdict& verdict);

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
// Decides whether a program may use the GPU: --if-healthy.
#pragma once

#include <optional>
#include <string>

#include "shim/launcher/child/variables.h"
#include "shim/launcher/health/answer_cache.h"
#include "shim/launcher/options.h"

namespace cudaguard::launcher {

/// The wish of the option, or of CUDAGUARD_POLICY=IF_HEALTHY if no option chooses a policy. Throws
/// Refusal for options that contradict it.
std::optional<HealthWish> health_wish(const Options& options, const Variables& variables);

/// Asks the driver, or takes the last answer. `list` is the value of --gpus; null means all GPUs.
/// Waits at most for `wish.limit`, and a tenth of a second for the death of a killed process.
/// Throws Refusal if the list cannot be checked.
Health check_health(const HealthWish& wish, const char* list, const Variables& variables);

/// Options for the program: VALIDATE with the same list, or FORCE_CPU. Throws Refusal if the driver
/// is not healthy and the wish requires it.
Options options_for(const Health& health, const HealthWish& wish, Options options);

/// The warning about a driver that is not healthy.
std::string health_warning(const Health& health, const HealthWish& wish);

/// Appends the decision to `report`, a file that this user may write.
void record_health(const Health& health, const std::string& report, char* const* words);

}  // namespace cudaguard::launcher

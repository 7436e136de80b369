// SPDX-License-Identifier: Apache-2.0
// Decides whether a program may use the GPU: --if-healthy.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>

#include "shim/launcher/child/variables.h"
#include "shim/launcher/options.h"

namespace cudaguard::launcher {

/// The driver's answer, or why there is none.
struct Health {
  bool healthy = false;
  std::string reason;  ///< a clause: "the driver did not answer in 10 s"; empty if healthy
  std::chrono::milliseconds took{0};
  /// The limit that was too short, if there was no answer in time; otherwise 0. A launch that would
  /// wait longer does not use this answer.
  std::chrono::milliseconds limit{0};
  int gpus = 0;
  std::chrono::milliseconds at{0};  ///< when it was written; time since boot
  bool by_list = false;             ///< the reason is the list of GPUs, not the driver
  // These are not in the file:
  pid_t stuck = 0;    ///< as in DriverAnswer
  bool asked = true;  ///< false: this process could not ask, so the answer is not for others
  std::chrono::milliseconds age{0};  ///< since it was written, if that was before this launch
};

/// The wish of the option, or of CUDAGUARD_POLICY=IF_HEALTHY if no option chooses a policy. Throws
/// Refusal for options that contradict it.
std::optional<HealthWish> health_wish(const GuardSettings& settings, const Variables& variables);

/// Asks the driver, or takes the last answer. `gpus` is the list of --gpus; without one, the
/// variable's list counts, and without that, all GPUs. Waits at most for `wish.limit`, and a tenth
/// of a second for the death of a killed process. Throws Refusal if the list cannot be checked.
Health check_health(const HealthWish& wish, const std::optional<std::string>& gpus,
                    Variables variables);

/// Settings for the program: VALIDATE with the same list, or FORCE_CPU. Throws Refusal if the
/// driver is not healthy and the wish requires it.
GuardSettings settings_for(const Health& health, const HealthWish& wish, GuardSettings settings);

/// The warning about a driver that is not healthy.
std::string health_warning(const Health& health, const HealthWish& wish);

/// Appends the decision to `report`, which is as in CUDAGUARD_REPORT. Not to syslog.
void record_health(const Health& health, const std::string& report, char* const* words);

}  // namespace cudaguard::launcher

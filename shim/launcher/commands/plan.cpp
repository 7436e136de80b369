// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/commands/plan.h"

#include "shim/launcher/findings/decide.h"

namespace cudaguard::launcher {

Plan plan_of_run(const Options& options) {
  Plan plan;
  plan.program = options.program;
  plan.settings = options;
  plan.settings.errors_only = options.observe;
  plan.strict = options.strict;
  if (options.observe) plan.watch = Plan::Watch::kAttempts;
  return plan;
}

Plan plan_of_verify(const Options& options) {
  Plan plan;
  plan.program = options.program;
  plan.settings.cpu = true;
  plan.settings.no_gpu_presets = true;
  plan.settings.errors_only = true;
  plan.settings.report = options.report;
  plan.settings.fence = options.fence.value_or(FenceWish::kAuto);
  plan.watch = Plan::Watch::kProcesses;
  plan.deny = denied_words(options.deny);
  check_patterns(options.allow);
  plan.allow = options.allow;
  plan.allow_incomplete = options.allow_incomplete;
  plan.strict_result = options.strict;
  plan.files = {options.json_file, options.junit_file, options.html_file, options.force};
  return plan;
}

}  // namespace cudaguard::launcher

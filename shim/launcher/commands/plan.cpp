// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/commands/plan.h"

#include "policy/policies.h"
#include "shim/launcher/findings/decide.h"
#include "shim/launcher/message.h"

namespace cudaguard::launcher {

namespace {

std::optional<std::chrono::milliseconds> grace_of(const Options& options) {
  if (!options.grace) return {};
  const uint32_t seconds = seconds_of(*options.grace);
  if (seconds != 0 || *options.grace == "0") return std::chrono::seconds(seconds);
  throw Refusal(kRefused, "--grace " + in_quotes(*options.grace) +
                              " is not accepted (accepted: seconds, 0 to 3600)");
}

/// Under NO_CONTEXT, a refused load of NVIDIA's OpenCL leaves no record, and init is no attempt
/// that the guard refuses. The fence would refuse the queries.
void check_context(const Plan& plan) {
  for (const DriverApi other : {DriverApi::kCuda, DriverApi::kOpenCl}) {
    if (!plan.deny.contains(other)) continue;
    throw Refusal(kRefused, "--deny=context and --deny=" + std::string(denied_word_of(other)) +
                                " contradict each other; leave one out" +
                                (other == DriverApi::kCuda ? " (init denies contexts, too)" : ""));
  }
  if (plan.settings.wants_fence()) {
    throw Refusal(kRefused, "--deny=context and --fence contradict each other; leave one out");
  }
}

}  // namespace

Plan plan_of_run(const Options& options) {
  Plan plan;
  plan.program = options.program;
  plan.settings = options;
  plan.settings.errors_only = options.observe;
  plan.strict = options.strict;
  if (options.observe) plan.watch = Plan::Watch::kAttempts;
  plan.grace = grace_of(options);
  if (plan.grace && !options.observe) {
    throw Refusal(kRefused, "--grace is for --observe; see cudaguard run --help");
  }
  return plan;
}

Plan plan_of_verify(const Options& options) {
  Plan plan;
  plan.program = options.program;
  plan.deny = denied_words(options.deny);
  const bool queries = plan.deny.contains(DriverApi::kContext);
  if (queries) {
    plan.settings.policy = name_of(Policy::kNoContext);
  } else {
    plan.settings.cpu = true;
  }
  plan.settings.no_gpu_presets = true;
  plan.settings.errors_only = true;
  plan.settings.report = options.report;
  plan.settings.fence = options.fence.value_or(queries ? FenceWish::kOff : FenceWish::kAuto);
  plan.only_listens = queries && !options.fence;
  if (queries) check_context(plan);
  plan.watch = Plan::Watch::kProcesses;
  plan.grace = grace_of(options);
  check_patterns(options.allow);
  plan.allow = options.allow;
  plan.allow_incomplete = options.allow_incomplete;
  plan.strict_result = options.strict;
  plan.files = {options.json_file, options.junit_file, options.html_file, options.force};
  return plan;
}

}  // namespace cudaguard::launcher

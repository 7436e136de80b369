// SPDX-License-Identifier: Apache-2.0
// Tests what `run` and `verify` make of their options.
#include "shim/launcher/commands/plan.h"

#include <gtest/gtest.h>

#include "shim/launcher/message.h"

namespace cudaguard::launcher {
namespace {

using Watch = Plan::Watch;

TEST(Plan, RunBecomesTheProgramUnlessItObserves) {
  Options options;
  options.gpus = "2";
  options.strict = true;
  const Plan plan = plan_of_run(options);
  EXPECT_EQ(plan.watch, Watch::kNot);
  EXPECT_EQ(plan.settings.gpus, "2");
  EXPECT_FALSE(plan.settings.wants_fence());
  EXPECT_FALSE(plan.settings.errors_only);
  EXPECT_TRUE(plan.strict);
  options.observe = true;
  EXPECT_EQ(plan_of_run(options).watch, Watch::kAttempts);
  EXPECT_TRUE(plan_of_run(options).settings.errors_only);
}

TEST(Plan, VerifyAllowsNoCudaAndWantsAFence) {
  Options options;
  options.report = "r";
  options.junit_file = "j";
  const Plan plan = plan_of_verify(options);
  EXPECT_EQ(plan.watch, Watch::kProcesses);
  EXPECT_TRUE(plan.settings.cpu && plan.settings.no_gpu_presets && plan.settings.errors_only);
  EXPECT_FALSE(plan.settings.observe);
  EXPECT_EQ(plan.settings.fence, FenceWish::kAuto);
  EXPECT_EQ(plan.settings.report, "r");
  EXPECT_EQ(plan.files.junit, "j");
  EXPECT_FALSE(plan.strict_result);
  EXPECT_EQ(plan.deny, std::set{DriverApi::kCuda});
  options.fence = FenceWish::kOff;
  EXPECT_FALSE(plan_of_verify(options).settings.wants_fence());
  // An unguarded command is started, because --allow can name it.
  options.strict = true;
  EXPECT_TRUE(plan_of_verify(options).strict_result);
  EXPECT_FALSE(plan_of_verify(options).strict);
}

TEST(Plan, VerifyRefusesWrongRulesBeforeItStartsAnything) {
  Options options;
  options.deny = {"inti"};
  EXPECT_THROW(plan_of_verify(options), Refusal);
  options.deny = {};
  options.allow = {""};
  EXPECT_THROW(plan_of_verify(options), Refusal);
}

}  // namespace
}  // namespace cudaguard::launcher

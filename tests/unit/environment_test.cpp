// SPDX-License-Identifier: Apache-2.0
// What `run` makes of options and environment: the variables of the program.
#include <gtest/gtest.h>

#include "shim/launcher/child/variables.h"
#include "shim/launcher/message.h"
#include "shim/launcher/preload/preload.h"
#include "shim/launcher/preload/settings.h"

namespace cudaguard::launcher {
namespace {

class Settings : public testing::Test {
 protected:
  /// The policy that applies; "refused: ..." if there is none.
  std::string settled(std::vector<const char*> environment) {
    environment.push_back(nullptr);
    variables_ = Variables(environment.data());
    try {
      return std::string(name_of(settle(options_, variables_).policy));
    } catch (const Refusal& refusal) {
      return std::string("refused: ") + refusal.what();
    }
  }
  std::string value(const char* name) const {
    const char* text = variables_.get(name);
    return text == nullptr ? "(unset)" : text;
  }
  Options options_;
  Variables variables_{nullptr};
};

TEST_F(Settings, ForceCpuIsTheDefault) {
  EXPECT_EQ(settled({}), "FORCE_CPU");
  EXPECT_EQ(value("CUDAGUARD_POLICY"), "FORCE_CPU");
  EXPECT_EQ(value("CUDA_VISIBLE_DEVICES"), "");
  EXPECT_EQ(value("CUDAGUARD_VISIBLE_DEVICES"), "(unset)");
}

TEST_F(Settings, TheEnvironmentChoosesIfNoOptionDoes) {
  EXPECT_EQ(settled({"CUDAGUARD_POLICY=clamp"}), "CLAMP");
  EXPECT_EQ(value("CUDAGUARD_POLICY"), "clamp");
  EXPECT_EQ(settled({"CUDAGUARD_POLICY=OFF", "CUDAGUARD_VISIBLE_DEVICES=1"}), "OFF");
  EXPECT_EQ(value("CUDAGUARD_VISIBLE_DEVICES"), "(unset)");
  EXPECT_EQ(settled({"CUDAGUARD_VISIBLE_DEVICES=1"}), "VALIDATE");
  EXPECT_EQ(value("CUDAGUARD_POLICY"), "(unset)");
}

TEST_F(Settings, CpuOverridesTheEnvironment) {
  options_.cpu = true;
  EXPECT_EQ(settled({"CUDAGUARD_POLICY=OFF", "CUDAGUARD_VISIBLE_DEVICES=1"}), "FORCE_CPU");
  EXPECT_EQ(value("CUDAGUARD_VISIBLE_DEVICES"), "(unset)");
  EXPECT_EQ(settled({"CUDAGUARD_POLICY=nonsense"}), "FORCE_CPU");
}

TEST_F(Settings, AListNeedsAPolicyThatLetsThrough) {
  options_.gpus = "2";
  EXPECT_EQ(settled({"CUDAGUARD_POLICY=OFF"}), "VALIDATE");
  EXPECT_EQ(value("CUDAGUARD_VISIBLE_DEVICES"), "2");
  EXPECT_EQ(settled({"CUDAGUARD_POLICY=CLAMP"}), "CLAMP");
  EXPECT_EQ(
      settled({"CUDAGUARD_POLICY=x"}),
      "refused: CUDAGUARD_POLICY=\"x\" is not accepted (accepted: FORCE_CPU, VALIDATE, CLAMP, "
      "OFF)");
  options_.policy = "CLAMP";
  EXPECT_EQ(settled({"CUDAGUARD_POLICY=x"}), "CLAMP");
  options_.gpus = "";
  EXPECT_EQ(settled({}), "FORCE_CPU");
}

TEST_F(Settings, ObserveLetsCudaThroughUnlessAFenceStands) {
  options_.observe = true;
  EXPECT_EQ(settled({}), "VALIDATE");
  EXPECT_EQ(value("CUDAGUARD_LOG"), "error");
  EXPECT_EQ(settled({"CUDAGUARD_LOG=all"}), "VALIDATE");
  EXPECT_EQ(value("CUDAGUARD_LOG"), "all");
  options_.fence = FenceWish::kAuto;
  EXPECT_EQ(settled({}), "FORCE_CPU");
}

TEST_F(Settings, AFenceContradictsAPolicyThatLetsThrough) {
  options_.fence = FenceWish::kRequire;
  EXPECT_EQ(settled({"CUDAGUARD_POLICY=CLAMP"}),
            "refused: --fence lets nothing through, and the policy is CLAMP (--cpu with it, or no "
            "--fence)");
  options_.gpus = "1";
  EXPECT_EQ(settled({}),
            "refused: --fence lets nothing through: it and --gpus contradict each other");
}

TEST_F(Settings, AnOuterRunsPresetsAreTakenBack) {
  options_.gpus = "1";
  EXPECT_EQ(settled({"CUDA_VISIBLE_DEVICES=", "JAX_PLATFORMS=cpu",
                     "CUDAGUARD_PRESETS=CUDA_VISIBLE_DEVICES,JAX_PLATFORMS"}),
            "VALIDATE");
  EXPECT_EQ(value("CUDA_VISIBLE_DEVICES"), "(unset)");
  EXPECT_EQ(value("CUDAGUARD_PRESETS"), "gpus=1");
}

TEST_F(Settings, AVariableThatTheUserHasSetIsNoPreset) {
  EXPECT_EQ(settled({"CUDA_VISIBLE_DEVICES=3"}), "FORCE_CPU");
  EXPECT_EQ(value("CUDA_VISIBLE_DEVICES"), "3");
  options_.no_presets = true;
  EXPECT_EQ(settled({}), "FORCE_CPU");
  EXPECT_EQ(value("JAX_PLATFORMS"), "(unset)");
}

TEST(EnvironmentVariables, ChangesAreShellCommands) {
  const char* const environment[] = {"A=1", "B=2", "A=3", nullptr};
  Variables variables(environment);
  variables.set("A", "it's $HOME");
  variables.unset("B");
  variables.unset("C");
  variables.set("D", "$$");
  EXPECT_EQ(variables.changes(), "export A='it'\\''s $HOME'\nunset B\nexport D=$$\n");
  EXPECT_STREQ(variables.get("A"), "it's $HOME");
  EXPECT_EQ(variables.pointers().size(), 3u);  // A once, D, and the null
}

TEST(PreloadList, OurOlderEntriesGoAndSanitizersComeFirst) {
  EXPECT_EQ(preload_list(nullptr, {}, {"/new/libcudaguard.so"}), "/new/libcudaguard.so");
  EXPECT_EQ(
      preload_list("/x/libcudaguard.so:/y/a.so /z/libasan.so.8", {}, {"/new/libcudaguard.so"}),
      "/z/libasan.so.8:/new/libcudaguard.so:/y/a.so");
  EXPECT_EQ(preload_list("/y/a.so", {"/l/libtsan.so.2"}, {"/new/libcudaguard.so"}),
            "/l/libtsan.so.2:/new/libcudaguard.so:/y/a.so");
}

}  // namespace
}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
// Tests the variables that `run` sets for the program from options and environment.
#include <gtest/gtest.h>

#include "policy/policies.h"
#include "policy/variables.h"
#include "shim/launcher/child/variables.h"
#include "shim/launcher/message.h"
#include "shim/launcher/preload/preload.h"
#include "shim/launcher/preload/settings.h"

namespace cudaguard::launcher {
namespace {

const std::string kNoPolicy =
    "\" is not accepted (accepted: " + std::string(row_of(Variable::kPolicy).accepted) + ")";

class Settings : public testing::Test {
 protected:
  /// Returns the policy that applies, or "refused: ..." if there is none.
  std::string settled(std::vector<const char*> environment) {
    environment.push_back(nullptr);
    variables_ = Variables(environment.data());
    try {
      const GuardConfig config = settle(settings_, variables_, gpus_);
      left_out_ = config.left_out;
      return std::string(name_of(config.policy));
    } catch (const Refusal& refusal) {
      return std::string("refused: ") + refusal.what();
    }
  }
  std::string value(const char* name) const {
    const char* text = variables_.get(name);
    return text == nullptr ? "(unset)" : text;
  }
  GuardSettings settings_;
  Variables variables_{nullptr};
  std::string left_out_;
  size_t gpus_ = 0;  // this machine's
};

TEST_F(Settings, ForceCpuIsTheDefault) {
  EXPECT_EQ(settled({}), "FORCE_CPU");
  EXPECT_EQ(value("CUDAGUARD_POLICY"), "FORCE_CPU");
  EXPECT_EQ(value("CUDA_VISIBLE_DEVICES"), "");
  EXPECT_EQ(value("CUDAGUARD_VISIBLE_DEVICES"), "(unset)");
  EXPECT_EQ(value("CUDAGUARD_PRESETS"), "CUDA_VISIBLE_DEVICES,JAX_PLATFORMS,MPIR_CVAR_ENABLE_GPU");
  mark_fenced(variables_);
  EXPECT_EQ(value("CUDAGUARD_PRESETS"),
            "fence,CUDA_VISIBLE_DEVICES,JAX_PLATFORMS,MPIR_CVAR_ENABLE_GPU");
  EXPECT_TRUE(is_first_process(variables_));
  variables_.set("CUDAGUARD_ROOT", "1:" + value("CUDAGUARD_ROOT"));
  EXPECT_FALSE(is_first_process(variables_));
  variables_.unset("CUDAGUARD_ROOT");
  EXPECT_FALSE(is_first_process(variables_));
}

TEST_F(Settings, TheEnvironmentChoosesIfNoOptionDoes) {
  EXPECT_EQ(settled({"CUDAGUARD_POLICY=clamp"}), "CLAMP");
  EXPECT_EQ(value("CUDAGUARD_POLICY"), "clamp");
  EXPECT_EQ(settled({"CUDAGUARD_POLICY=OFF", "CUDAGUARD_VISIBLE_DEVICES=1"}), "OFF");
  EXPECT_EQ(value("CUDAGUARD_VISIBLE_DEVICES"), "(unset)");
  EXPECT_EQ(settled({"CUDAGUARD_VISIBLE_DEVICES=1"}), "VALIDATE");
  EXPECT_EQ(value("CUDAGUARD_POLICY"), "(unset)");
}

TEST_F(Settings, ListNeedsAPolicyThatAllowsGpus) {
  settings_.gpus = "2";
  EXPECT_EQ(settled({"CUDAGUARD_POLICY=OFF"}), "VALIDATE");
  EXPECT_EQ(value("CUDAGUARD_VISIBLE_DEVICES"), "2");
  EXPECT_EQ(settled({"CUDAGUARD_POLICY=CLAMP"}), "CLAMP");
  std::string of_variable = "refused: CUDAGUARD_POLICY=\"x" + kNoPolicy;
  of_variable.insert(of_variable.size() - 1, ", IF_HEALTHY");  // the launcher's own word
  EXPECT_EQ(settled({"CUDAGUARD_POLICY=x"}), of_variable);
  settings_.policy = "CLAMP";
  EXPECT_EQ(settled({"CUDAGUARD_POLICY=x"}), "CLAMP");
  settings_.gpus = "";
  EXPECT_EQ(settled({}), "FORCE_CPU");
}

TEST_F(Settings, ObserveAllowsCudaUnlessThereIsAFence) {
  settings_.observe = true;
  EXPECT_EQ(settled({}), "VALIDATE");
  settings_.fence = FenceWish::kAuto;
  EXPECT_EQ(settled({}), "FORCE_CPU");
}

TEST_F(Settings, FenceContradictsAPolicyThatAllowsGpus) {
  settings_.fence = FenceWish::kRequire;
  EXPECT_EQ(settled({"CUDAGUARD_POLICY=CLAMP"}),
            "refused: --fence allows no CUDA, and the policy is CLAMP; add --cpu, or leave --fence "
            "out");
  settings_.gpus = "1";
  EXPECT_EQ(settled({}),
            "refused: --fence and --gpus contradict each other; leave one out, or use "
            "--fence=devices");
  settings_.fence = FenceWish::kDevices;
  EXPECT_EQ(settled({}), "VALIDATE");
}

TEST_F(Settings, OuterRunsPresetsAreRemoved) {
  settings_.gpus = "1";
  EXPECT_EQ(settled({"CUDA_VISIBLE_DEVICES=", "JAX_PLATFORMS=cpu",
                     "CUDAGUARD_PRESETS=CUDA_VISIBLE_DEVICES,JAX_PLATFORMS"}),
            "VALIDATE");
  EXPECT_EQ(value("CUDA_VISIBLE_DEVICES"), "(unset)");
  EXPECT_EQ(value("CUDAGUARD_PRESETS"), "gpus=1");
}

TEST_F(Settings, VariableOfTheUserIsNoPreset) {
  EXPECT_EQ(settled({"CUDA_VISIBLE_DEVICES=3"}), "FORCE_CPU");
  EXPECT_EQ(value("CUDA_VISIBLE_DEVICES"), "3");
  settings_.no_presets = true;
  EXPECT_EQ(settled({}), "FORCE_CPU");
  EXPECT_EQ(value("JAX_PLATFORMS"), "(unset)");
  EXPECT_EQ(value("CUDAGUARD_PRESETS"), "");  // the variable is set as a mark of the launcher
}

TEST_F(Settings, RelativeReportBecomesAbsolute) {
  for (const auto& [given, end] : {std::pair("r", "/r"), std::pair("/x/r", "/x/r")}) {
    settings_.report = given;
    settled({});
    EXPECT_TRUE(value("CUDAGUARD_REPORT").starts_with("/")) << value("CUDAGUARD_REPORT");
    EXPECT_TRUE(value("CUDAGUARD_REPORT").ends_with(end)) << value("CUDAGUARD_REPORT");
  }
  EXPECT_EQ(value("CUDAGUARD_REPORT"), "/x/r");
}

TEST_F(Settings, InnerRunKeepsWhatTheOuterOneHasMarked) {
  const char* marks = "CUDAGUARD_PRESETS=unhealthy,children,gpus=1,2";
  settled({marks, "CUDAGUARD_VISIBLE_DEVICES=1,2", "CUDAGUARD_CHILDREN=FORCE_CPU"});
  EXPECT_EQ(value("CUDAGUARD_PRESETS"), "unhealthy,children,gpus=1,2");
  settings_.gpus = "3";
  settled({marks, "CUDAGUARD_VISIBLE_DEVICES=1,2", "CUDAGUARD_CHILDREN=FORCE_CPU"});
  EXPECT_EQ(value("CUDAGUARD_PRESETS"), "unhealthy,children,gpus=3");
}

TEST_F(Settings, RulesOfTheOptionReplaceTheVariable) {
  settings_.rules = {"VALIDATE program=worker*", "FORCE_CPU user=root # none"};
  EXPECT_EQ(settled({"CUDAGUARD_RULES=OFF"}), "VALIDATE") << "for what is preloaded";
  EXPECT_EQ(value("CUDAGUARD_POLICY"), "FORCE_CPU");
  EXPECT_EQ(value("CUDAGUARD_RULES"), "VALIDATE program=worker*\nFORCE_CPU user=root # none");
  // Its empty CUDA_VISIBLE_DEVICES would hide the GPUs from the workers.
  EXPECT_EQ(value("CUDAGUARD_PRESETS"), "");
  EXPECT_EQ(value("CUDA_VISIBLE_DEVICES"), "(unset)");
  settings_.rules = {"FORCE_CPU user=root"};
  EXPECT_EQ(settled({}), "FORCE_CPU");
  EXPECT_EQ(value("CUDA_VISIBLE_DEVICES"), "");
}

TEST_F(Settings, OptionThatNamesAPolicyOverridesTheVariableWithRules) {
  EXPECT_EQ(settled({"CUDAGUARD_RULES=VALIDATE program=x"}), "VALIDATE");
  EXPECT_EQ(value("CUDAGUARD_RULES"), "VALIDATE program=x");
  settings_.cpu = true;
  EXPECT_EQ(settled({"CUDAGUARD_RULES=VALIDATE program=x"}), "FORCE_CPU");
  EXPECT_EQ(value("CUDAGUARD_RULES"), "(unset)");
}

TEST_F(Settings, RuleNarrowsWhatAnOuterRunAllows) {
  settings_.rules = {"OFF"};
  EXPECT_EQ(settled({"CUDAGUARD_PRESETS=", "CUDAGUARD_POLICY=FORCE_CPU"}), "FORCE_CPU");
  EXPECT_EQ(value("CUDAGUARD_RULES"), "FORCE_CPU & OFF");
  settled({"CUDAGUARD_PRESETS=gpus=2,5", "CUDAGUARD_POLICY=VALIDATE",
           "CUDAGUARD_VISIBLE_DEVICES=2,5", "CUDAGUARD_RULES=CLAMP user=a; OFF user=b & CLAMP"});
  EXPECT_EQ(value("CUDAGUARD_RULES"),
            "VALIDATE gpus=\"2,5\"; CLAMP user=a gpus=\"2,5\"; OFF user=b & "
            "VALIDATE gpus=\"2,5\"; CLAMP gpus=\"2,5\" & OFF");
  settled({"CUDAGUARD_PRESETS=", "CUDAGUARD_POLICY=OFF", "CUDAGUARD_RULES=CLAMP user="});
  EXPECT_EQ(value("CUDAGUARD_RULES"), "FORCE_CPU & OFF");
  // An option lifts the outer run, and the rule narrows the option.
  settings_.gpus = "1";
  EXPECT_EQ(settled({"CUDAGUARD_PRESETS=", "CUDAGUARD_POLICY=FORCE_CPU"}), "VALIDATE");
  EXPECT_EQ(value("CUDAGUARD_RULES"), "VALIDATE gpus=\"1\" & OFF");
}

TEST_F(Settings, WrongRuleIsRefusedInTheWordsOfTheGuard) {
  settings_.rules = {"OFF", "VALIDATES program=x"};
  EXPECT_EQ(settled({}), "refused: --rule \"VALIDATES program=x\": \"VALIDATES" + kNoPolicy);
  settings_.rules = {"OFF environment=may-widen"};
  EXPECT_EQ(settled({}),
            "refused: --rule \"OFF environment=may-widen\": environment= works only in "
            "/etc/cudaguard.conf");
  for (const char* none : {"", " ", "# x"}) {
    settings_.rules = {none};
    EXPECT_EQ(settled({}), "refused: --rule needs a value");
  }
  settings_.rules = {std::string(4000, '#') + "\nOFF", "OFF args=" + std::string(200, 'x')};
  EXPECT_EQ(settled({}), "refused: all rules together are longer than 4095 bytes");
  settings_.rules = {};
  EXPECT_EQ(settled({"CUDAGUARD_RULES=OFF user="}),
            "refused: CUDAGUARD_RULES: user= needs a value");
  settings_.rules = {"CLAMP user=a"};
  settings_.fence = FenceWish::kAuto;
  EXPECT_EQ(settled({}), "refused: --fence and --rule contradict each other; leave one out");
}

TEST_F(Settings, OtherToolsWordsAreExplained) {
  const auto ends = [&](const char* text) {
    const std::string refused = settled({});
    EXPECT_TRUE(refused.ends_with(std::string("; did you mean ") + text + "?")) << refused;
    settings_ = {};
  };
  settings_.policy = "cpu";
  ends("FORCE_CPU");
  settings_.log = "none";
  ends("off");
  settings_.log = "warn";
  ends("deny");
  settings_.gpus = "all";
  ends("--policy VALIDATE");
  settings_.gpus = "none";
  ends("--cpu");
  EXPECT_TRUE(settled({"CUDAGUARD_POLICY=CPU"}).ends_with("; did you mean FORCE_CPU?"));
}

TEST_F(Settings, VisibleDevicesOfBeforeAreTheMachines) {
  const struct {
    const char* list;
    const char* before;
    const char* after;
    const char* left_out;  // a part of the warning; "": none
  } cases[] = {
      {"1,2", "1,2", "0,1", ""},
      {"1,2", "2,1", "1,0", ""},
      {"4,5,6,7", "4,5,6,7", "0,1,2,3", ""},
      {"1", "0,1,2,3", "0", ""},
      {"1,2,3", "3,0,1", "2,0", "leaves only GPU 3,1 of --gpus \"1,2,3\"; "},
      {"1,2", "1,x,2", "0", "leaves only GPU 1 of "},
      {"1,2", "1,,2", "0", "leaves only GPU 1 of "},
      {"1,2", "1,-1,2", "0", "leaves only GPU 1 of "},
      {"1,2", "", "", "\"\", set before cudaguard, leaves no GPU of "},
      {"1,2", "-1", "-1", "leaves no GPU of "},
      {"1,2", "NoDevFiles", "NoDevFiles", "leaves no GPU of "},
      {"1,2", "1,2,1", "-1", "leaves no GPU of "},  // CUDA's rule for a GPU twice
      {"GPU-1,GPU-2", "GPU-1,GPU-2,GPU-12", "-1", "leaves no GPU of "},
      {"1,2", "GPU-1,GPU-2", "GPU-1,GPU-2", ""},  // the guard finds them in the list
      {"GPU-1,GPU-2", "GPU-2345,GPU-3", "1", "leaves only GPU-2 of "},
      {"GPU-1,2", "2", "1", "leaves only GPU 2 of "},
  };
  for (const auto& one : cases) {
    settings_.gpus = one.list;
    EXPECT_EQ(settled({(std::string("CUDA_VISIBLE_DEVICES=") + one.before).c_str()}), "VALIDATE");
    EXPECT_EQ(value("CUDA_VISIBLE_DEVICES"), one.after) << one.before;
    const bool some = *one.left_out != '\0';
    EXPECT_EQ(!left_out_.empty(), some) << left_out_;
    EXPECT_NE(left_out_.find(one.left_out), std::string::npos) << left_out_;
  }
  settings_ = {};
  settled({"CUDAGUARD_VISIBLE_DEVICES=5,6", "CUDA_VISIBLE_DEVICES=6"});
  EXPECT_EQ(value("CUDA_VISIBLE_DEVICES"), "1");
  EXPECT_NE(left_out_.find("leaves only GPU 6 of CUDAGUARD_VISIBLE_DEVICES=\"5,6\""),
            std::string::npos)
      << left_out_;
}

TEST_F(Settings, VisibleDevicesEndAtAnIndexThatTheMachineDoesNotHave) {
  gpus_ = 8;
  const struct {
    const char* list;
    const char* before;
    const char* after;  // with 8 GPUs; "": refused
    const char* unknown;
  } cases[] = {{"1,2", "1,9,2", "0", "0,1"},
               {"1,2", "1,8,2", "0", "0,1"},
               {"1,2", "2,7,1", "1,0", "1,0"},
               {"1,2", "1,999999999999,2", "0", "0,1"},
               {"1,2", "1,9,1", "0", "-1"},  // a GPU that comes again after the end is not read
               {"1,2", "1,1,9", "-1", "-1"},
               {"0,1", " 1, 0", "1,0", "1,0"},
               {"0,1", "+1gpu,09,0", "1", "1,0"},
               {"1,2", "8,1,2", "", "0,1"},
               {"1,2", "9,9", "-1", "-1"},
               {"GPU-1,GPU-2", "GPU-1,GPU-3,GPU-2", "0,1", "0,1"},
               {"1,2", "9", "", ""}};
  for (const auto& one : cases) {
    const std::string before = std::string("CUDA_VISIBLE_DEVICES=") + one.before;
    settings_.gpus = one.list;
    gpus_ = 8;
    const std::string known = settled({before.c_str()});
    if (*one.after == '\0') {
      EXPECT_TRUE(known.starts_with("refused: ")) << one.before << known;
      EXPECT_NE(known.find(", set before cudaguard, leaves no GPU of --gpus"), std::string::npos);
    } else {
      EXPECT_EQ(value("CUDA_VISIBLE_DEVICES"), one.after) << one.before;
    }
    gpus_ = 0;
    if (!settled({before.c_str()}).starts_with("refused: ")) {
      EXPECT_EQ(value("CUDA_VISIBLE_DEVICES"), one.unknown) << one.before;
    }
  }
}

TEST_F(Settings, VisibleDevicesInARunArePositionsInItsList) {
  const auto inner = [&](const char* mask) {
    return settled({(std::string("CUDA_VISIBLE_DEVICES=") + mask).c_str(),
                    "CUDAGUARD_VISIBLE_DEVICES=5,6,GPU-1", "CUDAGUARD_PRESETS=gpus=5,6,GPU-1"});
  };
  inner("1");
  EXPECT_EQ(value("CUDA_VISIBLE_DEVICES"), "1");
  EXPECT_EQ(left_out_, "");
  settings_.gpus = "6,5";
  inner("1,0,9");
  EXPECT_EQ(value("CUDA_VISIBLE_DEVICES"), "0,1");
  gpus_ = 1;  // the list has more positions in a container
  inner("1,0,3,0");
  EXPECT_EQ(value("CUDA_VISIBLE_DEVICES"), "0,1");
  settings_.gpus = "GPU-12";
  inner("2");
  EXPECT_EQ(value("CUDA_VISIBLE_DEVICES"), "0");
}

TEST_F(Settings, VisibleDevicesThatCannotBeTranslatedAreRefused) {
  settings_.gpus = "1,2";
  EXPECT_EQ(settled({"CUDA_VISIBLE_DEVICES=3"}),
            "refused: CUDA_VISIBLE_DEVICES=\"3\", set before cudaguard, leaves no GPU of --gpus "
            "\"1,2\"; to use all of them: unset CUDA_VISIBLE_DEVICES");
  settings_.gpus = "GPU-1";
  EXPECT_EQ(settled({"CUDA_VISIBLE_DEVICES=1"}),
            "refused: CUDA_VISIBLE_DEVICES=\"1\", set before cudaguard, and --gpus \"GPU-1\" name "
            "GPUs in different ways; write both as indices or as UUIDs");
}

TEST_F(Settings, GuardMayComeBeforeTheRuntimeOfAsan) {
  const char* const cases[][2] = {
      {nullptr, "verify_asan_link_order=0"},
      {"ASAN_OPTIONS=", "verify_asan_link_order=0"},
      {"ASAN_OPTIONS=a=1", "a=1:verify_asan_link_order=0"},
      {"ASAN_OPTIONS=a=1:", "a=1:verify_asan_link_order=0"},
      {"ASAN_OPTIONS=no_verify_asan_link_order=1",
       "no_verify_asan_link_order=1:verify_asan_link_order=0"},
      {"ASAN_OPTIONS=a=1 verify_asan_link_order=1", "a=1 verify_asan_link_order=1"},
      {"ASAN_OPTIONS=verify_asan_link_order=0,a=1", "verify_asan_link_order=0,a=1"}};
  for (const bool verify : {false, true}) {
    settings_.no_gpu_presets = verify;
    for (const auto& [before, after] : cases) {
      before == nullptr ? settled({}) : settled({before});
      EXPECT_EQ(value("ASAN_OPTIONS"), after);
      EXPECT_EQ(value("JAX_PLATFORMS"), verify ? "(unset)" : "cpu");
    }
  }
  settings_ = {};
  settings_.no_presets = true;
  settled({});
  EXPECT_EQ(value("ASAN_OPTIONS"), "(unset)");
}

TEST_F(Settings, ContradictoryOptionsAreRefused) {
  std::string needed = "--children needs --gpus";
  for (const PolicyRow& row : kPolicies) {
    if (!allows_cuda(row.policy)) continue;
    needed.append(row.policy == Policy::kValidate ? ", " : " or ");
    needed.append("--policy ").append(name_of(row.policy));
  }
  const std::string contradict = " contradict each other; leave one out";
  const std::pair<GuardSettings, std::string> cases[] = {
      {{.cpu = true, .gpus = "1"}, "--cpu and --gpus" + contradict},
      {{.cpu = true, .policy = "CLAMP"}, "--cpu and --policy CLAMP" + contradict},
      {{.cpu = true, .children = "cpu"}, "--cpu and --children" + contradict},
      {{.gpus = "1", .policy = "force-cpu"}, "--gpus and --policy FORCE_CPU" + contradict},
      {{.gpus = "1", .policy = "off"}, "--gpus and --policy OFF" + contradict},
      {{.policy = "OFF", .children = "cpu"}, "--children and --policy OFF" + contradict},
      {{.policy = "off", .observe = true}, "--observe and --policy OFF" + contradict},
      {{.children = "cpu"}, needed},
      // NO_CONTEXT, too, would contradict it.
      {{.children = "query"}, needed.substr(0, needed.find(" or --policy NO_CONTEXT"))},
      {{.gpus = "1", .children = "CPU"},
       "--children \"CPU\" is not accepted (accepted: cpu, gpu, query, contexts)"},
      {{.policy = ""}, "--policy needs a value"},
      {{.policy = "x"}, "--policy \"x" + kNoPolicy},
      {{.log = ""}, "--log needs a value"},
      {{.log = "loud"}, "--log \"loud\" is not accepted (accepted: off, error, deny, all)"},
      {{.report = ""}, "--report needs a value"},
      {{.cpu = true, .policy = "force-cpu"}, ""},
      {{.gpus = "1", .policy = "CLAMP", .children = "cpu"}, ""},
      {{.policy = "CLAMP", .observe = true}, ""},
  };
  for (const auto& [settings, why] : cases) {
    settings_ = settings;
    const std::string result = settled({});
    const bool refused = result.starts_with("refused: ");
    EXPECT_EQ(refused ? result.substr(9) : "", why);
  }
}

TEST_F(Settings, BadListIsRefusedWithTheNameOfItsSource) {
  const std::string many(10000, '1');
  for (const auto& [list, why] :
       {std::pair("1,1", "repeats"), std::pair("1,01", "repeats"),
        std::pair("GPU-1,GPU-1", "repeats"), std::pair("1,,2", "empty"), std::pair("1,", "empty"),
        std::pair("all", "is not accepted"), std::pair("0x1", "is not accepted"),
        std::pair("-1,0", "negative"), std::pair("0,-1", "negative"),
        std::pair("--cpu", "is not accepted"), std::pair(many.c_str(), "longer than 6143")}) {
    settings_.gpus = list;
    const std::string by_option = settled({});
    EXPECT_TRUE(by_option.starts_with("refused: --gpus \"")) << by_option;
    EXPECT_NE(by_option.find(why), std::string::npos) << by_option;
    settings_.gpus.reset();
    const std::string by_variable =
        settled({("CUDAGUARD_VISIBLE_DEVICES=" + std::string(list)).c_str()});
    EXPECT_TRUE(by_variable.starts_with("refused: CUDAGUARD_VISIBLE_DEVICES=\"")) << by_variable;
    EXPECT_NE(by_variable.find(why), std::string::npos) << by_variable;
  }
  for (const char* list : {"0", " 0 , 1 ", "007", "GPU-1", "MIG-2,GPU-1", "0,GPU-1"}) {
    settings_.gpus = list;
    EXPECT_EQ(settled({}), "VALIDATE") << list;
    EXPECT_EQ(value("CUDAGUARD_PRESETS"), std::string("gpus=") + list);
  }
}

TEST_F(Settings, OptionOverridesContradictoryVariables) {
  std::vector<const char*> left = {"CUDAGUARD_POLICY=CLAMP", "CUDAGUARD_VISIBLE_DEVICES=1",
                                   "CUDAGUARD_CHILDREN=FORCE_CPU", "CUDAGUARD_ROOT=77"};
  const auto all = [&](const GuardSettings& settings) {
    settings_ = settings;
    settled(left);
    const bool own = value("CUDAGUARD_ROOT") == name_of_this_process();
    return value("CUDAGUARD_POLICY") + " " + value("CUDAGUARD_VISIBLE_DEVICES") + " " +
           value("CUDAGUARD_CHILDREN") + " " + (own ? "own" : value("CUDAGUARD_ROOT"));
  };
  EXPECT_EQ(all({}), "CLAMP 1 FORCE_CPU 77");
  EXPECT_EQ(all({.cpu = true}), "FORCE_CPU (unset) (unset) own");
  EXPECT_EQ(all({.policy = "OFF"}), "OFF (unset) (unset) own");
  EXPECT_EQ(value("CUDAGUARD_PRESETS"), "(unset)");
  EXPECT_EQ(all({.gpus = "3"}), "CLAMP 3 FORCE_CPU own");
  EXPECT_EQ(all({.policy = "validate"}), "validate 1 FORCE_CPU own");
  EXPECT_EQ(value("CUDAGUARD_PRESETS"), "");
  EXPECT_EQ(all({.children = "cpu"}), "CLAMP 1 FORCE_CPU own");
  EXPECT_EQ(all({.policy = "CLAMP", .print = true}), "CLAMP 1 FORCE_CPU $$");
  // A worker to which an outer run leaves CUDA must not become the process that has none.
  left[2] = "CUDAGUARD_CHILDREN=ONLY";
  EXPECT_EQ(all({.gpus = "3"}), "CLAMP 3 ONLY 77");
  EXPECT_EQ(all({.policy = "CLAMP", .print = true}), "CLAMP 1 ONLY 77");
  EXPECT_EQ(all({.children = "gpu"}), "CLAMP 1 ONLY own");
  settings_ = {};
  settled({"CUDAGUARD_CHILDREN=", "CUDAGUARD_ROOT=77"});
  EXPECT_EQ(value("CUDAGUARD_ROOT"), name_of_this_process());
  settled({"CUDAGUARD_CHILDREN=FORCE_CPU", "CUDAGUARD_ROOT="});
  EXPECT_EQ(value("CUDAGUARD_ROOT"), name_of_this_process());
}

TEST_F(Settings, GStreamersRegistryIsInTheUsersCache) {
  for (const auto& [given, directory] :
       {std::pair(std::vector{"XDG_CACHE_HOME=/c", "HOME=/h"}, "/c"),
        std::pair(std::vector{"HOME=/h"}, "/h/.cache"),
        std::pair(std::vector{"XDG_CACHE_HOME=c", "HOME=/h"}, "/h/.cache"),
        std::pair(std::vector{"XDG_CACHE_HOME=", "HOME=h"}, ""),
        std::pair(std::vector<const char*>{}, "")}) {
    settled(given);
    const std::string path = value("GST_REGISTRY_1_0");
    EXPECT_EQ(path.substr(0, path.find("/cudaguard/")), *directory == '\0' ? "(unset)" : directory);
    std::vector<const char*> chosen = given;
    chosen.push_back("GST_REGISTRY=/mine");
    settled(chosen);
    EXPECT_EQ(value("GST_REGISTRY_1_0"), "(unset)");
  }
}

TEST_F(Settings, OnlyPresetsOfTheOuterRunAreRemoved) {
  settings_.gpus = "1";
  settled({"CUDA_VISIBLE_DEVICES=", "JAX_PLATFORMS=cuda", "GST_REGISTRY_1_0=/mine/registry.bin",
           "MPIR_CVAR_ENABLE_GPU=0", "HOME=/h",
           "CUDAGUARD_PRESETS=HOME,,JAX_PLATFORMS,GST_REGISTRY_1_0,x"});
  EXPECT_EQ(value("CUDA_VISIBLE_DEVICES"), "");
  EXPECT_EQ(value("JAX_PLATFORMS"), "cuda");
  EXPECT_EQ(value("GST_REGISTRY_1_0"), "/mine/registry.bin");
  EXPECT_EQ(value("MPIR_CVAR_ENABLE_GPU"), "0");
  EXPECT_EQ(value("HOME"), "/h");
  settings_ = {};
  settled({"HOME=/h"});
  const std::string registry = value("GST_REGISTRY_1_0");
  settings_.policy = "OFF";
  settled(
      {("GST_REGISTRY_1_0=/elsewhere" + registry.substr(std::string("/h/.cache").size())).c_str(),
       "CUDAGUARD_PRESETS=GST_REGISTRY_1_0"});
  EXPECT_EQ(value("GST_REGISTRY_1_0"), "(unset)");
  EXPECT_EQ(value("CUDAGUARD_PRESETS"), "(unset)");
}

TEST(PreloadList, OlderEntriesAreRemovedAndSanitizersComeFirst) {
  const struct {
    const char* before;
    std::vector<std::string> sanitizers;
    const char* list;
  } cases[] = {{nullptr, {}, "/new/libcudaguard.so"},
               {"", {}, "/new/libcudaguard.so"},
               {"libm.so.6:/new/libcudaguard.so", {}, "/new/libcudaguard.so:libm.so.6"},
               {"libm.so.6:libm.so.6", {}, "/new/libcudaguard.so:libm.so.6:libm.so.6"},
               {"/x/libcudaguard.so:/y/a.so /z/libasan.so.8",
                {},
                "/z/libasan.so.8:/new/libcudaguard.so:/y/a.so"},
               {"/y/a.so", {"/l/libtsan.so.2"}, "/l/libtsan.so.2:/new/libcudaguard.so:/y/a.so"}};
  for (const auto& one : cases) {
    EXPECT_EQ(preload_list(one.before, one.sanitizers, {"/new/libcudaguard.so"}), one.list);
  }
}

}  // namespace
}  // namespace cudaguard::launcher

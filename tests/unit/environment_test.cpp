// SPDX-License-Identifier: Apache-2.0
// Tests the variables that `run` sets for the program from options and environment.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "policy/policies.h"
#include "policy/variables.h"
#include "shim/launcher/child/variables.h"
#include "shim/launcher/message.h"
#include "shim/launcher/preload/preload.h"
#include "shim/launcher/preload/settings.h"
#include "tests/unit/transcript.h"

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

/// The options of a row; the other entries are variables.
void set_option(GuardSettings& settings, std::string_view name, const std::string& value) {
  const Key is{std::string(name)};
  if (is("cpu")) settings.cpu = true;
  if (is("gpus")) settings.gpus = value;
  if (is("policy")) settings.policy = value;
  if (is("children")) settings.children = value;
  if (is("log")) settings.log = value;
  if (is("rule")) settings.rules.push_back(value);
  if (is("observe")) settings.observe = true;
  if (is("print")) settings.print = true;
  if (is("no_presets")) settings.no_presets = true;
  if (is("verify")) settings.no_gpu_presets = true;
  if (is("fence")) settings.fence = FenceWish::kAuto;
  if (is("fence") && value == "require") settings.fence = FenceWish::kRequire;
  if (is("fence") && value == "devices") settings.fence = FenceWish::kDevices;
}

TEST_F(Settings, AreAsWritten) {
  expect_as_written(CG_SETTINGS, [&](const std::string& inputs, const std::string& outputs) {
    settings_ = {};
    gpus_ = 0;
    std::vector<std::string> variables;
    for (const auto& [name, value] : entries_of(inputs)) {
      if (name == "machine") gpus_ = std::stoul(value);
      if (name >= "a" && name != "machine") set_option(settings_, name, value);
      if (name < "a") variables.push_back(name + "=" + value);
    }
    std::vector<const char*> environment;
    for (const std::string& variable : variables) environment.push_back(variable.c_str());
    std::string text = settled(environment);
    EXPECT_EQ(left_out_, "");
    const size_t asked = outputs.find('|');
    for (const auto& [name, value] :
         entries_of(asked == std::string::npos ? "" : outputs.substr(asked + 1))) {
      const char* given = variables_.get(name.c_str());
      text += "|" + name;
      if (given == nullptr) continue;
      for (const char c : "=" + (given == name_of_this_process() ? "own" : std::string(given))) {
        text += c == '\n' ? "\\n" : std::string(1, c);
      }
    }
    const std::string accepted(row_of(Variable::kPolicy).accepted);
    const size_t policies = text.find(accepted);
    if (policies != std::string::npos) text.replace(policies, accepted.size(), "POLICIES");
    return text;
  });
}

TEST_F(Settings, MarksAreAdded) {
  EXPECT_EQ(settled({}), "FORCE_CPU");
  mark_fenced(variables_);
  EXPECT_EQ(value("CUDAGUARD_PRESETS"),
            "fence,CUDA_VISIBLE_DEVICES,JAX_PLATFORMS,MPIR_CVAR_ENABLE_GPU");
  EXPECT_TRUE(is_first_process(variables_));
  variables_.set("CUDAGUARD_ROOT", "1:" + value("CUDAGUARD_ROOT"));
  EXPECT_FALSE(is_first_process(variables_));
  variables_.unset("CUDAGUARD_ROOT");
  EXPECT_FALSE(is_first_process(variables_));
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

TEST_F(Settings, RulesTogetherHaveALimit) {
  settings_.rules = {std::string(4000, '#') + "\nOFF", "OFF args=" + std::string(200, 'x')};
  EXPECT_EQ(settled({}), "refused: all rules together are longer than 4095 bytes");
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

TEST_F(Settings, RegistryOfTheOuterRunIsRemoved) {
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

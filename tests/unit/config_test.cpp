// SPDX-License-Identifier: Apache-2.0
#include "policy/config.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace cudaguard {
namespace {

std::vector<std::string> words_of(Variable variable) {
  std::vector<std::string> words;
  std::string_view rest = row_of(variable).accepted;
  while (!rest.empty()) {
    const std::string_view word = take_entry(rest);
    words.emplace_back(word.starts_with(' ') ? tail(word, 1) : word);
  }
  return words;
}

Config parsed_policy(const char* value) { return parse_config({.policy = value}); }

TEST(Config, NothingSet_ForcesCpuAndReportsItOnce) {
  const Config config = parse_config({});
  EXPECT_EQ(config.policy, Policy::kForceCpu);
  EXPECT_EQ(config.log, Log::kDeny);
  EXPECT_TRUE(config.report.empty());
  EXPECT_EQ(config.complaint_count, 0U);
}

TEST(Config, Policy_AcceptsAnyCaseAndDashes) {
  for (const char* value : {"FORCE_CPU", "force_cpu", "Force-Cpu", "force-CPU"}) {
    EXPECT_EQ(parsed_policy(value).policy, Policy::kForceCpu) << value;
    EXPECT_EQ(parsed_policy(value).complaint_count, 0U) << value;
  }
  for (const char* value : {"OFF", "off", "Off"}) {
    EXPECT_EQ(parsed_policy(value).policy, Policy::kOff) << value;
  }
}

TEST(Config, UnknownPolicy_MeansForceCpuWithOneComplaint) {
  for (const char* value : {"VALID", "CLAMPED", "ON", "0", " OFF", "OFF ", "OFFF", "\xff"}) {
    const Config config = parsed_policy(value);
    EXPECT_EQ(config.policy, Policy::kForceCpu) << value;
    ASSERT_EQ(config.complaint_count, 1U) << value;
    EXPECT_EQ(config.complaints[0].variable, "CUDAGUARD_POLICY");
    EXPECT_EQ(config.complaints[0].value, value);
    EXPECT_EQ(config.complaints[0].accepted, "FORCE_CPU, VALIDATE, CLAMP, OFF");
  }
}

TEST(Config, ChildrenByOption_NeedsTheMarkOfTheRun) {
  for (const char* presets : {"children", "JAX_PLATFORMS,children,gpus=0,1"}) {
    EXPECT_TRUE(parse_config({.presets = presets}).children_by_option) << presets;
  }
  for (const char* presets : {"", "gpus=0", "children2", "gpus=children"}) {
    EXPECT_FALSE(parse_config({.presets = presets}).children_by_option) << presets;
  }
  EXPECT_FALSE(parse_config({}).children_by_option);
}

TEST(Config, ByOption_AppliesOnlyToTheListOfTheRun) {
  EXPECT_EQ(parse_config({.visible_devices = "0,1", .presets = "gpus=0,1"}).allow_list.by,
            ListBy::kOption);
  EXPECT_TRUE(parse_config({.visible_devices = "0,1", .presets = "gpus=0,1"}).in_run);
  for (const char* presets :
       {"gpus=0", "gpus=2,3", "gpus=0,1,2", "gpus=", "", "0,1", "x_gpus=0,1"}) {
    EXPECT_EQ(parse_config({.visible_devices = "0,1", .presets = presets}).allow_list.by,
              ListBy::kVariable)
        << presets;
  }
  EXPECT_EQ(parse_config({.visible_devices = "0,1"}).allow_list.by, ListBy::kVariable);
  EXPECT_EQ(parse_config({.presets = "gpus=0,1"}).allow_list.by, ListBy::kVariable);
  EXPECT_EQ(parse_config({.visible_devices = "-1", .presets = "JAX_PLATFORMS,gpus=-1"}).because,
            "--gpus allows no GPU");
}

TEST(Config, EmptyVariable_IsUnset) {
  const Config config = parse_config({.policy = "", .log = "", .report = ""});
  EXPECT_EQ(config.policy, Policy::kForceCpu);
  EXPECT_EQ(config.log, Log::kDeny);
  EXPECT_TRUE(config.report.empty());
  EXPECT_EQ(config.complaint_count, 0U);
}

TEST(Config, Log_UnknownLevelMeansDenyWithAComplaint) {
  EXPECT_EQ(parse_config({.log = "off"}).log, Log::kOff);
  EXPECT_EQ(parse_config({.log = "error"}).log, Log::kError);
  EXPECT_EQ(parse_config({.log = "ALL"}).log, Log::kAll);
  const Config bad = parse_config({.log = "verbose"});
  EXPECT_EQ(bad.log, Log::kDeny);
  ASSERT_EQ(bad.complaint_count, 1U);
  EXPECT_EQ(bad.complaints[0].accepted, "off, error, deny, all");
}

TEST(Config, Report_AcceptsTheLongestPathAndNoLongerOne) {
  const std::string longest(kMaxReportPath, 'x');
  EXPECT_EQ(parse_config({.report = longest.c_str()}).report, longest);
  const std::string more(kMaxReportPath + 1, 'x');
  const Config config = parse_config({.report = more.c_str()});
  EXPECT_TRUE(config.report.empty());
  ASSERT_EQ(config.complaint_count, 1U);
  EXPECT_EQ(config.complaints[0].variable, "CUDAGUARD_REPORT");
}

TEST(Config, AllBad_MakesThreeComplaints) {
  const std::string more(kMaxReportPath + 1, 'x');
  EXPECT_EQ(parse_config({.policy = "a", .log = "b", .report = more.c_str()}).complaint_count, 3U);
}

TEST(Config, Privileged_IgnoresTheEnvironment) {
  const Config config =
      parse_config({.policy = "OFF", .log = "bad", .report = "/tmp/x", .privileged = true});
  EXPECT_EQ(config.policy, Policy::kForceCpu);
  EXPECT_TRUE(config.report.empty());
  EXPECT_EQ(config.complaint_count, 0U);
}

TEST(Config, ForkedChild_IsAChildUnderTheChildrenRule) {
  EXPECT_TRUE(is_narrowed(
      parse_config({.policy = "VALIDATE", .children = "FORCE_CPU", .root = "42", .forked = true}),
      {.pid = 42}));
  EXPECT_FALSE(
      is_narrowed(parse_config({.policy = "VALIDATE", .root = "42", .forked = true}), {.pid = 42}));
}

TEST(Config, AllowList_MeansValidateUnlessAPolicyIsNamed) {
  EXPECT_EQ(parse_config({.visible_devices = "2,5"}).policy, Policy::kValidate);
  EXPECT_EQ(parse_config({.visible_devices = "2,5"}).allow_list.text, "2,5");
  EXPECT_EQ(parse_config({.policy = "", .visible_devices = "2"}).policy, Policy::kValidate);
  EXPECT_EQ(parse_config({.policy = "clamp", .visible_devices = "2"}).policy, Policy::kClamp);
  EXPECT_EQ(parse_config({.policy = "OFF", .visible_devices = "2"}).policy, Policy::kOff);
  EXPECT_EQ(parse_config({.policy = "OFF", .visible_devices = "nonsense"}).policy, Policy::kOff);
  EXPECT_EQ(parse_config({.policy = "nonsense", .visible_devices = "2"}).policy, Policy::kForceCpu);
  const Config both = parse_config({.policy = "FORCE_CPU", .visible_devices = "2,5"});
  EXPECT_EQ(both.policy, Policy::kForceCpu);
  ASSERT_EQ(both.complaint_count, 1U);
  EXPECT_EQ(parse_config({.policy = "FORCE_CPU", .visible_devices = ""}).complaint_count, 0U);
  EXPECT_EQ(parse_config({.policy = "nonsense", .visible_devices = "2"}).complaint_count, 1U);
  EXPECT_EQ(both.complaints[0].variable, "CUDAGUARD_VISIBLE_DEVICES");
  EXPECT_TRUE(both.complaints[0].accepted.empty());
}

TEST(Config, AllowList_EmptyMeansForceCpuWithoutAComplaint) {
  for (const char* none : {"", " ", "-1"}) {
    const Config config = parse_config({.visible_devices = none});
    EXPECT_EQ(config.policy, Policy::kForceCpu) << none;
    EXPECT_EQ(config.list_error.why, ListError::Why::kNone) << none;
    EXPECT_FALSE(config.because.empty()) << none;
    EXPECT_EQ(config.complaint_count, 0U) << none;
  }
}

TEST(Config, AllowList_MistakeMeansForceCpu) {
  for (const char* bad : {"1gpu2", "0,,1", "all", "none", "void", "-1,0", "0,-1", "1;2", "0,0"}) {
    const Config config = parse_config({.policy = "VALIDATE", .visible_devices = bad});
    EXPECT_EQ(config.policy, Policy::kForceCpu) << bad;
    EXPECT_TRUE(config.allow_list.text.empty()) << bad;
    EXPECT_EQ(config.bad_list, bad);
    EXPECT_NE(config.list_error.why, ListError::Why::kNone) << bad;
  }
  const std::string huge(kMaxVisibleDevices + 1, '1');
  const Config config = parse_config({.visible_devices = huge.c_str()});
  EXPECT_EQ(config.policy, Policy::kForceCpu);
  EXPECT_EQ(config.list_error.why, ListError::Why::kTooLong);
}

TEST(Config, Children_RestrictAllButTheRoot) {
  const Config root = parse_config({.policy = "VALIDATE", .children = "force-cpu", .root = "41"});
  EXPECT_EQ(root.children, Children::kForceCpu);
  EXPECT_EQ(root.root, 41U);
  EXPECT_FALSE(is_narrowed(root, {.pid = 41}));
  EXPECT_FALSE(is_narrowed(root, {.pid = 41, .pid_namespace = "pid:[7]"}));
  EXPECT_TRUE(is_narrowed(root, {.pid = 42}));
  EXPECT_FALSE(is_narrowed(parse_config({.policy = "VALIDATE"}), {.pid = 42}));
  EXPECT_FALSE(is_narrowed(parse_config({.policy = "OFF", .children = "FORCE_CPU"}), {.pid = 42}));
}

TEST(Config, Children_RootsNamespaceMustMatch) {
  const Config root =
      parse_config({.policy = "VALIDATE", .children = "FORCE_CPU", .root = "1:pid:[4026531836]"});
  EXPECT_EQ(root.complaint_count, 0U);
  EXPECT_FALSE(is_narrowed(root, {.pid = 1, .pid_namespace = "pid:[4026531836]"}));
  EXPECT_TRUE(is_narrowed(root, {.pid = 1, .pid_namespace = "pid:[4026531837]"}));
  EXPECT_TRUE(is_narrowed(root, {.pid = 2, .pid_namespace = "pid:[4026531836]"}));
  EXPECT_TRUE(is_narrowed(root, {.pid = 1, .pid_namespace = {}})) << "the namespace is unknown";
}

TEST(Config, Children_OnlyTheyMayUseCuda) {
  Config root = parse_config({.policy = "CLAMP", .children = "only", .root = "1:pid:[7]"});
  EXPECT_EQ(root.children, Children::kOnly);
  EXPECT_TRUE(is_narrowed(root, {.pid = 1, .pid_namespace = "pid:[7]"}));
  EXPECT_TRUE(is_narrowed(root, {.pid = 1, .pid_namespace = {}})) << "the namespace is unknown";
  EXPECT_FALSE(is_narrowed(root, {.pid = 1, .pid_namespace = "pid:[8]"}));
  EXPECT_FALSE(is_narrowed(root, {.pid = 2, .pid_namespace = "pid:[7]"}));
  EXPECT_FALSE(is_narrowed(
      parse_config({.policy = "CLAMP", .children = "ONLY", .root = "1", .forked = true}),
      {.pid = 1}));
  // It loads what its forked children need.
  apply_children_rule(root, {.pid = 1, .pid_namespace = "pid:[7]"});
  EXPECT_EQ(root.policy, Policy::kForceCpu);
  EXPECT_EQ(root.loads, Policy::kClamp);
  EXPECT_EQ(root.because, kIsParent);
  Config child = parse_config({.policy = "CLAMP", .children = "FORCE_CPU", .root = "1"});
  apply_children_rule(child, {.pid = 2});
  EXPECT_EQ(child.loads, Policy::kForceCpu);
}

TEST(Config, Children_OnlyWithoutARootMeansForceCpu) {
  EXPECT_EQ(parse_config({.policy = "VALIDATE", .children = "ONLY"}).policy, Policy::kForceCpu);
  for (const char* bad : {"0", "x", "4:5"}) {
    const Config config = parse_config({.policy = "VALIDATE", .children = "ONLY", .root = bad});
    for (const uint32_t pid : {1U, 4U, 7U}) EXPECT_TRUE(is_narrowed(config, {.pid = pid})) << bad;
  }
}

TEST(Config, Children_WithoutARootAllAreRestricted) {
  const Config alone = parse_config({.policy = "VALIDATE", .children = "FORCE_CPU"});
  EXPECT_EQ(alone.policy, Policy::kForceCpu);
  EXPECT_FALSE(alone.because.empty());
  ASSERT_EQ(alone.complaint_count, 1U);
  EXPECT_NE(alone.complaints[0].instead.find("CUDAGUARD_ROOT=$$"), std::string_view::npos);
  EXPECT_EQ(parse_config({.policy = "OFF", .children = "FORCE_CPU"}).complaint_count, 0U);
}

TEST(Config, Children_BadValueMeansMoreRestriction) {
  for (const char* bad : {"yes", "ONLYY", "VALIDATE"}) {
    const Config children = parse_config({.policy = "VALIDATE", .children = bad, .root = "4"});
    EXPECT_EQ(children.policy, Policy::kForceCpu) << bad;
    EXPECT_EQ(children.complaint_count, 1U) << bad;
  }
  EXPECT_EQ(parse_config({.policy = "OFF", .children = "yes"}).policy, Policy::kOff);
  for (const char* bad : {"0", "-4", "4x", "x", "99999999999", " 4", "4:", "4:5", ":pid:[4]"}) {
    const Config config =
        parse_config({.policy = "VALIDATE", .children = "FORCE_CPU", .root = bad});
    EXPECT_EQ(config.complaint_count, 1U) << bad;
    EXPECT_TRUE(is_narrowed(config, {.pid = 4})) << bad;
  }
}

TEST(Config, EverythingBad_MakesNoMoreComplaintsThanFit) {
  const std::string more(kMaxReportPath + 1, 'x');
  const Config config = parse_config({.policy = "a",
                                      .visible_devices = "c",
                                      .children = "d",
                                      .root = "e",
                                      .log = "b",
                                      .report = more.c_str(),
                                      .rules = more.c_str()});
  EXPECT_LE(config.complaint_count, kMostComplaints);
  EXPECT_EQ(config.policy, Policy::kForceCpu);
}

TEST(Config, WantsLine_FollowsTheLogLevel) {
  EXPECT_TRUE(wants_line(Log::kDeny, true));
  EXPECT_FALSE(wants_line(Log::kDeny, false));
  EXPECT_TRUE(wants_line(Log::kAll, false));
  EXPECT_FALSE(wants_line(Log::kOff, true));
  EXPECT_FALSE(wants_line(Log::kError, true));
}

TEST(Config, EachPolicy_HasAWordAndARow) {
  const std::vector<std::string> words = words_of(Variable::kPolicy);
  ASSERT_EQ(words.size(), std::size(kRules));
  for (size_t i = 0; i < words.size(); ++i) {
    const auto policy = static_cast<Policy>(i);
    EXPECT_EQ(name_of(policy), words[i]);
    const Config config = parse_config({.policy = words[i].c_str()});
    EXPECT_EQ(config.policy, policy);
    EXPECT_EQ(config.complaint_count, 0U);
  }
}

TEST(Config, Words_AreInTheOrderOfTheirEnumeration) {
  EXPECT_EQ(name_of(Policy::kForceCpu), "FORCE_CPU");
  EXPECT_EQ(name_of(Policy::kValidate), "VALIDATE");
  EXPECT_EQ(name_of(Policy::kClamp), "CLAMP");
  EXPECT_EQ(name_of(Policy::kOff), "OFF");
  const std::vector<std::string> logs = words_of(Variable::kLog);
  ASSERT_EQ(logs, (std::vector<std::string>{"off", "error", "deny", "all"}));
  EXPECT_EQ(parse_config({.log = "deny"}).log, Log::kDeny);
  for (size_t i = 0; i < logs.size(); ++i) {
    EXPECT_EQ(parse_config({.log = logs[i].c_str()}).log, static_cast<Log>(i));
  }
}

/// A process of this executable.
RuleFacts program(std::string_view path) { return {.program = {path, true, false}}; }

TEST(Config, Rules_ChooseThePolicyOfAProgram) {
  const Environment environment = {.policy = "FORCE_CPU",
                                   .rules = "VALIDATE program=worker*; CLAMP program=c gpus=1"};
  const Config router = parse_config(environment, program("/opt/router"));
  EXPECT_EQ(router.policy, Policy::kForceCpu);
  EXPECT_TRUE(router.because.empty()) << "CUDAGUARD_POLICY lifts it";
  EXPECT_EQ(parse_config(environment, program("/opt/worker2")).policy, Policy::kValidate);
  const Config clamp = parse_config(environment, program("/c"));
  EXPECT_EQ(clamp.policy, Policy::kClamp);
  EXPECT_EQ(clamp.allow_list.text, "1");
  EXPECT_EQ(parse_config(environment).policy, Policy::kForceCpu) << "nothing is known";
  const Config ruled =
      parse_config({.policy = "OFF", .rules = "FORCE_CPU program=a"}, program("/a"));
  EXPECT_EQ(ruled.policy, Policy::kForceCpu);
  EXPECT_EQ(ruled.because, kIsRuled);
  EXPECT_EQ(ruled.rule, "FORCE_CPU program=a");
}

TEST(Config, Rules_KeepTheListOfTheEnvironment) {
  const Config config =
      parse_config({.visible_devices = "2,5", .rules = "CLAMP", .presets = "gpus=2,5"});
  EXPECT_EQ(config.policy, Policy::kClamp);
  EXPECT_EQ(config.allow_list.text, "2,5");
  EXPECT_EQ(config.allow_list.by, ListBy::kOption);
  const Config own =
      parse_config({.visible_devices = "2,5", .rules = "VALIDATE gpus=0", .presets = "gpus=2,5"});
  EXPECT_EQ(own.allow_list.text, "0");
  EXPECT_EQ(own.allow_list.by, ListBy::kRule);
  EXPECT_EQ(parse_config({.visible_devices = "2", .rules = "OFF"}).allow_list.text, "");
}

TEST(Config, Rules_LiftNoForceCpuThatAMistakeHasCaused) {
  for (const Environment& wrong :
       {Environment{.policy = "VALIDATES", .rules = "OFF"},
        Environment{.visible_devices = "x", .rules = "OFF"},
        Environment{.visible_devices = "-1", .rules = "OFF"},
        Environment{.policy = "FORCE_CPU", .visible_devices = "2", .rules = "OFF"},
        Environment{.policy = "OFF", .rules = "OFF; VALIDATES"},
        Environment{.policy = "VALIDATE", .rules = "VALIDATE gpus=0 & VALIDATE gpus=1"}}) {
    const Config config = parse_config(wrong);
    EXPECT_EQ(config.policy, Policy::kForceCpu) << wrong.rules;
  }
  const Config config = parse_config({.policy = "OFF", .rules = "OFF; VALIDATES"});
  EXPECT_EQ(config.rule_mistake.why, RuleMistake::Why::kPolicy);
  EXPECT_EQ(config.rule_place, "CUDAGUARD_RULES");
  const std::string many(kMaxRules + 1, ' ');
  EXPECT_EQ(parse_config({.policy = "OFF", .rules = many.c_str()}).policy, Policy::kForceCpu);
  EXPECT_EQ(parse_config({.policy = "OFF", .rules = many.c_str() + 1}).policy, Policy::kOff);
}

/// What the machine's file says in line 7.
MachineRuling machine(Policy policy, std::string_view gpus = {}, bool may_widen = false) {
  MachineRuling machine;
  machine.place = "/etc/cudaguard.conf:7";
  machine.ruling.decided = true;
  machine.ruling.rule = "a rule";
  machine.ruling.policy = policy;
  machine.ruling.gpus = gpus;
  machine.ruling.may_widen = may_widen;
  return machine;
}

TEST(Config, Machine_DecidesIfTheEnvironmentIsSilent) {
  for (const Policy policy : {Policy::kForceCpu, Policy::kValidate, Policy::kClamp, Policy::kOff}) {
    const MachineRuling file = machine(policy);
    EXPECT_EQ(parse_config({}, {}, &file).policy, policy);
    EXPECT_EQ(parse_config({.policy = "OFF", .privileged = true}, {}, &file).policy, policy);
  }
  const MachineRuling none = machine(Policy::kForceCpu);
  EXPECT_EQ(parse_config({}, {}, &none).because, "/etc/cudaguard.conf:7");
  const MachineRuling list = machine(Policy::kValidate, "0,1");
  EXPECT_EQ(parse_config({}, {}, &list).allow_list.text, "0,1");
  EXPECT_EQ(parse_config({}, {}, &list).allow_list.place, "/etc/cudaguard.conf:7");
}

TEST(Config, Machine_EnvironmentNarrows) {
  const MachineRuling all = machine(Policy::kOff);
  EXPECT_EQ(parse_config({.policy = "FORCE_CPU"}, {}, &all).policy, Policy::kForceCpu);
  EXPECT_EQ(parse_config({.policy = "nonsense"}, {}, &all).policy, Policy::kForceCpu);
  EXPECT_EQ(parse_config({.policy = "CLAMP"}, {}, &all).policy, Policy::kClamp);
  EXPECT_EQ(parse_config({.visible_devices = "2"}, {}, &all).allow_list.text, "2");
  EXPECT_EQ(parse_config({.visible_devices = "2"}, {}, &all).allow_list.place, "");
  EXPECT_EQ(parse_config({.visible_devices = ""}, {}, &all).policy, Policy::kForceCpu);
  EXPECT_EQ(parse_config({.rules = "FORCE_CPU"}, {}, &all).policy, Policy::kForceCpu);
  const MachineRuling list = machine(Policy::kValidate, "0,1");
  EXPECT_EQ(parse_config({.visible_devices = "1"}, {}, &list).allow_list.text, "1");
  const Config children = parse_config({.children = "FORCE_CPU", .root = "41"}, {}, &all);
  EXPECT_FALSE(is_narrowed(children, {.pid = 41}));
  EXPECT_TRUE(is_narrowed(children, {.pid = 42}));
}

TEST(Config, Machine_EnvironmentDoesNotWiden) {
  const MachineRuling none = machine(Policy::kForceCpu);
  for (const Environment& wider :
       {Environment{.policy = "OFF"}, Environment{.policy = "VALIDATE"},
        Environment{.visible_devices = "0"}, Environment{.rules = "OFF"}}) {
    const Config config = parse_config(wider, {}, &none);
    EXPECT_EQ(config.policy, Policy::kForceCpu);
    EXPECT_EQ(config.because, "/etc/cudaguard.conf:7");
  }
  const MachineRuling list = machine(Policy::kClamp, "0,1");
  EXPECT_EQ(parse_config({.policy = "OFF"}, {}, &list).policy, Policy::kClamp);
  EXPECT_EQ(parse_config({.policy = "OFF"}, {}, &list).allow_list.text, "0,1");
  EXPECT_EQ(parse_config({.policy = "VALIDATE"}, {}, &list).allow_list.text, "0,1");
  EXPECT_EQ(parse_config({.visible_devices = "2"}, {}, &list).policy, Policy::kForceCpu);
  EXPECT_EQ(parse_config({.rules = "VALIDATE gpus=2"}, {}, &list).policy, Policy::kForceCpu);
}

TEST(Config, Machine_EnvironmentMayWidenIfTheFileSaysSo) {
  const MachineRuling none = machine(Policy::kForceCpu, {}, true);
  EXPECT_EQ(parse_config({}, {}, &none).policy, Policy::kForceCpu);
  EXPECT_EQ(parse_config({.policy = "OFF"}, {}, &none).policy, Policy::kOff);
  // The message says what would lift the rule.
  EXPECT_TRUE(parse_config({}, {}, &none).may_lift);
  EXPECT_FALSE(parse_config({.privileged = true}, {}, &none).may_lift);
  const MachineRuling fixed = machine(Policy::kForceCpu);
  EXPECT_FALSE(parse_config({}, {}, &fixed).may_lift);
  EXPECT_EQ(parse_config({.policy = "OFF", .privileged = true}, {}, &none).policy,
            Policy::kForceCpu);
  // CUDAGUARD_CHILDREN names no policy, so the rule's applies, to the root alone.
  const MachineRuling list = machine(Policy::kValidate, "0,1", true);
  const Config children = parse_config({.children = "FORCE_CPU", .root = "41"}, {}, &list);
  EXPECT_EQ(children.policy, Policy::kValidate);
  EXPECT_EQ(children.allow_list.text, "0,1");
  EXPECT_TRUE(is_narrowed(children, {.pid = 42, .pid_namespace = {}}));
  EXPECT_FALSE(is_narrowed(children, {.pid = 41, .pid_namespace = {}}));
}

TEST(Config, Machine_UnusableFileMeansForceCpuAndIsNamed) {
  MachineRuling file;
  file.place = file.file = "/etc/cudaguard.conf";
  file.unusable = "root does not own it";
  for (const Environment& any : {Environment{}, Environment{.policy = "OFF"},
                                 Environment{.policy = "OFF", .privileged = true}}) {
    const Config config = parse_config(any, {}, &file);
    EXPECT_EQ(config.policy, Policy::kForceCpu);
    EXPECT_EQ(config.unused_file, "/etc/cudaguard.conf");
    EXPECT_STREQ(config.why_unused, "root does not own it");
  }
}

TEST(Config, DecidedBy_IsTheRuleThatGivesThePolicy) {
  const char* const line = "/etc/cudaguard.conf:7";
  struct Case {
    MachineRuling file;
    Environment environment;
    const char* decided_by;
  };
  MachineRuling silent = machine(Policy::kForceCpu);
  silent.ruling.rule = {};  // no rule matches
  for (const Case& one : {
           Case{machine(Policy::kForceCpu), {}, line},
           Case{machine(Policy::kForceCpu), {.rules = "OFF"}, line},
           Case{machine(Policy::kValidate), {.rules = "OFF"}, line},
           Case{machine(Policy::kValidate), {.visible_devices = "1"}, line},
           Case{machine(Policy::kValidate), {.rules = "FORCE_CPU; # x"}, "FORCE_CPU"},
           Case{machine(Policy::kValidate), {.policy = "FORCE_CPU"}, ""},
           Case{machine(Policy::kValidate, "0"), {.visible_devices = "1"}, ""},
           Case{machine(Policy::kForceCpu, {}, true), {.policy = "OFF"}, ""},
           Case{machine(Policy::kForceCpu, {}, true), {.rules = "OFF"}, "OFF"},
           Case{silent, {.policy = "OFF"}, ""},
       }) {
    EXPECT_EQ(parse_config(one.environment, {}, &one.file).decided_by, one.decided_by);
  }
  EXPECT_EQ(parse_config({.rules = "VALIDATES"}).decided_by, "");
  const MachineRuling file = machine(Policy::kValidate);
  Config child = parse_config({.children = "FORCE_CPU", .root = "41"}, {}, &file);
  apply_children_rule(child, {.pid = 42});
  EXPECT_EQ(child.decided_by, "");
}

TEST(Config, Machine_ReportIsKeptAndLogIsADefault) {
  MachineRuling file = machine(Policy::kValidate);
  file.ruling.report = "/var/log/gpu";
  file.ruling.log = 3;
  const Config config = parse_config({.log = "off", .report = "/tmp/x"}, {}, &file);
  EXPECT_EQ(config.report, "/var/log/gpu");
  EXPECT_EQ(config.log, Log::kOff);
  EXPECT_EQ(parse_config({.log = "off", .privileged = true}, {}, &file).log, Log::kAll);
  file.ruling.mistake.why = RuleMistake::Why::kPolicy;
  EXPECT_EQ(parse_config({}, {}, &file).rule_place, "/etc/cudaguard.conf:7");
}

}  // namespace
}  // namespace cudaguard

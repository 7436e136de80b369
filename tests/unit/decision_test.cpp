// SPDX-License-Identifier: Apache-2.0
#include "policy/decision.h"

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

constexpr ProcessIdentity kPrivileged = {.privileged = true};

/// True if CUDAGUARD_CHILDREN has narrowed this process to FORCE_CPU.
bool is_narrowed(const Environment& environment, const ProcessIdentity& process,
                 const RuleInputs& rules = {}) {
  const Decision made = decide(environment, rules, process);
  const bool narrowed = made.because == kIsChild || made.because == kIsParent;
  EXPECT_TRUE(!narrowed || made.calls == Policy::kForceCpu);
  return narrowed;
}

Decision parsed_policy(const char* value) { return decide({.policy = value}); }

TEST(ProcessDecision, NothingSetEmptyOrPrivileged_ForcesCpuWithoutAComplaint) {
  for (const Decision& config :
       {decide({}), decide({.policy = "", .log = "", .report = ""}),
        decide({.policy = "OFF", .log = "bad", .report = "/tmp/x"}, {}, kPrivileged)}) {
    EXPECT_EQ(config.calls, Policy::kForceCpu);
    EXPECT_EQ(config.log, Log::kDeny);
    EXPECT_TRUE(config.report.empty());
    EXPECT_EQ(config.mistakes.complaint_count, 0U);
  }
}

TEST(ProcessDecision, Policy_AcceptsAnyCaseAndDashes) {
  for (const char* value : {"FORCE_CPU", "force_cpu", "Force-Cpu", "force-CPU"}) {
    EXPECT_EQ(parsed_policy(value).calls, Policy::kForceCpu) << value;
    EXPECT_EQ(parsed_policy(value).mistakes.complaint_count, 0U) << value;
  }
  for (const char* value : {"OFF", "off", "Off"}) {
    EXPECT_EQ(parsed_policy(value).calls, Policy::kOff) << value;
  }
}

TEST(ProcessDecision, UnknownPolicy_MeansForceCpuWithOneComplaint) {
  for (const char* value : {"VALID", "CLAMPED", "ON", "0", " OFF", "OFF ", "OFFF", "\xff"}) {
    const Decision config = parsed_policy(value);
    EXPECT_EQ(config.calls, Policy::kForceCpu) << value;
    ASSERT_EQ(config.mistakes.complaint_count, 1U) << value;
    EXPECT_EQ(config.mistakes.complaints[0].variable, "CUDAGUARD_POLICY");
    EXPECT_EQ(config.mistakes.complaints[0].value, value);
    EXPECT_EQ(config.mistakes.complaints[0].accepted, row_of(Variable::kPolicy).accepted);
  }
}

TEST(ProcessDecision, ChildrenByOption_NeedsTheMarkOfTheRun) {
  for (const char* presets : {"children", "JAX_PLATFORMS,children,gpus=0,1"}) {
    EXPECT_TRUE(decide({.presets = presets}).children_by_option) << presets;
  }
  for (const char* presets : {"", "gpus=0", "children2", "gpus=children"}) {
    EXPECT_FALSE(decide({.presets = presets}).children_by_option) << presets;
  }
  EXPECT_FALSE(decide({}).children_by_option);
}

TEST(ProcessDecision, ByOption_AppliesOnlyToTheListOfTheRun) {
  EXPECT_EQ(decide({.visible_devices = "0,1", .presets = "gpus=0,1"}).allow_list.by,
            ListBy::kOption);
  EXPECT_TRUE(decide({.visible_devices = "0,1", .presets = "gpus=0,1"}).in_run);
  for (const char* presets :
       {"gpus=0", "gpus=2,3", "gpus=0,1,2", "gpus=", "", "0,1", "x_gpus=0,1"}) {
    EXPECT_EQ(decide({.visible_devices = "0,1", .presets = presets}).allow_list.by,
              ListBy::kVariable)
        << presets;
  }
  EXPECT_EQ(decide({.visible_devices = "0,1"}).allow_list.by, ListBy::kVariable);
  EXPECT_EQ(decide({.presets = "gpus=0,1"}).allow_list.by, ListBy::kVariable);
  EXPECT_EQ(decide({.visible_devices = "-1", .presets = "JAX_PLATFORMS,gpus=-1"}).because,
            "--gpus allows no GPU");
}

TEST(ProcessDecision, Log_UnknownLevelMeansDenyWithAComplaint) {
  EXPECT_EQ(decide({.log = "off"}).log, Log::kOff);
  EXPECT_EQ(decide({.log = "error"}).log, Log::kError);
  EXPECT_EQ(decide({.log = "ALL"}).log, Log::kAll);
  const Decision bad = decide({.log = "verbose"});
  EXPECT_EQ(bad.log, Log::kDeny);
  ASSERT_EQ(bad.mistakes.complaint_count, 1U);
  EXPECT_EQ(bad.mistakes.complaints[0].accepted, "off, error, deny, all");
}

TEST(ProcessDecision, Report_AcceptsTheLongestPathAndNoLongerOne) {
  const std::string longest(kMaxReportPath, 'x');
  EXPECT_EQ(decide({.report = longest.c_str()}).report, longest);
  const std::string more(kMaxReportPath + 1, 'x');
  const Decision config = decide({.report = more.c_str()});
  EXPECT_TRUE(config.report.empty());
  ASSERT_EQ(config.mistakes.complaint_count, 1U);
  EXPECT_EQ(config.mistakes.complaints[0].variable, "CUDAGUARD_REPORT");
}

TEST(ProcessDecision, AllowList_MeansValidateUnlessAPolicyIsNamed) {
  EXPECT_EQ(decide({.visible_devices = "2,5"}).calls, Policy::kValidate);
  EXPECT_EQ(decide({.visible_devices = "2,5"}).allow_list.text, "2,5");
  EXPECT_EQ(decide({.policy = "", .visible_devices = "2"}).calls, Policy::kValidate);
  EXPECT_EQ(decide({.policy = "clamp", .visible_devices = "2"}).calls, Policy::kClamp);
  EXPECT_EQ(decide({.policy = "OFF", .visible_devices = "2"}).calls, Policy::kOff);
  EXPECT_EQ(decide({.policy = "OFF", .visible_devices = "nonsense"}).calls, Policy::kOff);
  EXPECT_EQ(decide({.policy = "nonsense", .visible_devices = "2"}).calls, Policy::kForceCpu);
  const Decision both = decide({.policy = "FORCE_CPU", .visible_devices = "2,5"});
  EXPECT_EQ(both.calls, Policy::kForceCpu);
  ASSERT_EQ(both.mistakes.complaint_count, 1U);
  EXPECT_EQ(decide({.policy = "FORCE_CPU", .visible_devices = ""}).mistakes.complaint_count, 0U);
  EXPECT_EQ(decide({.policy = "nonsense", .visible_devices = "2"}).mistakes.complaint_count, 1U);
  EXPECT_EQ(both.mistakes.complaints[0].variable, "CUDAGUARD_VISIBLE_DEVICES");
  EXPECT_TRUE(both.mistakes.complaints[0].accepted.empty());
}

TEST(ProcessDecision, AllowList_EmptyMeansForceCpuWithoutAComplaint) {
  for (const char* none : {"", " ", "-1"}) {
    const Decision config = decide({.visible_devices = none});
    EXPECT_EQ(config.calls, Policy::kForceCpu) << none;
    EXPECT_EQ(config.mistakes.list.why, ListError::Why::kNone) << none;
    EXPECT_FALSE(config.because.empty()) << none;
    EXPECT_EQ(config.mistakes.complaint_count, 0U) << none;
  }
}

TEST(ProcessDecision, AllowList_MistakeMeansForceCpu) {
  for (const char* bad : {"1gpu2", "0,,1", "all", "none", "void", "-1,0", "0,-1", "1;2", "0,0"}) {
    const Decision config = decide({.policy = "VALIDATE", .visible_devices = bad});
    EXPECT_EQ(config.calls, Policy::kForceCpu) << bad;
    EXPECT_TRUE(config.allow_list.text.empty()) << bad;
    EXPECT_EQ(config.mistakes.bad_list, bad);
    EXPECT_NE(config.mistakes.list.why, ListError::Why::kNone) << bad;
  }
  const std::string huge(kMaxVisibleDevices + 1, '1');
  const Decision config = decide({.visible_devices = huge.c_str()});
  EXPECT_EQ(config.calls, Policy::kForceCpu);
  EXPECT_EQ(config.mistakes.list.why, ListError::Why::kTooLong);
}

TEST(ProcessDecision, Children_RestrictAllButTheFirstProcess) {
  const Environment environment = {
      .policy = "VALIDATE", .children = "force-cpu", .first_process = "41"};
  const Decision decision = decide(environment, {}, {.pid = 41});
  EXPECT_EQ(decision.mistakes.complaint_count, 0U);
  EXPECT_EQ(decision.children, Children::kForceCpu);
  EXPECT_EQ(decision.first_process, 41U);
  EXPECT_EQ(decision.calls, Policy::kValidate);
  EXPECT_FALSE(is_narrowed(environment, {.pid = 41, .pid_namespace = "pid:[7]"}));
  EXPECT_TRUE(is_narrowed(environment, {.pid = 42}));
  EXPECT_TRUE(is_narrowed(environment, {.pid = 41, .forked = true}));
  EXPECT_FALSE(is_narrowed({.policy = "VALIDATE", .first_process = "41"}, {.forked = true}));
  EXPECT_FALSE(is_narrowed(environment, {})) << "the launcher asks what the first process gets";
  EXPECT_FALSE(is_narrowed({.policy = "VALIDATE"}, {.pid = 42}));
  EXPECT_FALSE(is_narrowed({.policy = "OFF", .children = "FORCE_CPU"}, {.pid = 42}));
}

TEST(ProcessDecision, Children_NamespaceMustMatch) {
  const Environment environment = {
      .policy = "VALIDATE", .children = "FORCE_CPU", .first_process = "1:pid:[4026531836]"};
  EXPECT_EQ(decide(environment).mistakes.complaint_count, 0U);
  EXPECT_EQ(namespace_of_first_process(environment), "pid:[4026531836]");
  EXPECT_FALSE(is_narrowed(environment, {.pid = 1, .pid_namespace = "pid:[4026531836]"}));
  EXPECT_TRUE(is_narrowed(environment, {.pid = 1, .pid_namespace = "pid:[4026531837]"}));
  EXPECT_TRUE(is_narrowed(environment, {.pid = 2, .pid_namespace = "pid:[4026531836]"}));
  EXPECT_TRUE(is_narrowed(environment, {.pid = 1, .pid_namespace = {}}))
      << "the namespace is unknown";
}

TEST(ProcessDecision, Children_OnlyTheyMayUseCuda) {
  const Environment environment = {
      .policy = "CLAMP", .children = "only", .first_process = "1:pid:[7]"};
  EXPECT_EQ(decide(environment).children, Children::kOnly);
  EXPECT_TRUE(is_narrowed(environment, {.pid = 1, .pid_namespace = {}}))
      << "the namespace is unknown";
  EXPECT_FALSE(is_narrowed(environment, {.pid = 1, .pid_namespace = "pid:[8]"}));
  EXPECT_FALSE(is_narrowed(environment, {.pid = 2, .pid_namespace = "pid:[7]"}));
  EXPECT_FALSE(is_narrowed({.policy = "CLAMP", .children = "ONLY", .first_process = "1"},
                           {.pid = 1, .forked = true}));
  // It loads what its forked children need.
  const Decision parent = decide(environment, {}, {.pid = 1, .pid_namespace = "pid:[7]"});
  EXPECT_EQ(parent.calls, Policy::kForceCpu);
  EXPECT_EQ(parent.loads, Policy::kClamp);
  EXPECT_EQ(parent.because, kIsParent);
  const Decision child =
      decide({.policy = "CLAMP", .children = "FORCE_CPU", .first_process = "1"}, {}, {.pid = 2});
  EXPECT_EQ(child.calls, Policy::kForceCpu);
  EXPECT_EQ(child.loads, Policy::kForceCpu);
}

TEST(ProcessDecision, Children_OthersMayQuery) {
  struct Role {
    const char* children;
    Policy first;
    Policy other;
  };
  for (const Role& role : {Role{"NO_CONTEXT", Policy::kClamp, Policy::kNoContext},
                           Role{"ONLY_CONTEXTS", Policy::kNoContext, Policy::kClamp}}) {
    const Environment environment = {
        .policy = "CLAMP", .children = role.children, .first_process = "1"};
    for (const uint32_t pid : {1U, 2U}) {
      const Decision made = decide(environment, {}, {.pid = pid});
      EXPECT_EQ(made.calls, pid == 1 ? role.first : role.other) << role.children << pid;
      EXPECT_EQ(made.loads, made.calls) << role.children << pid;
      EXPECT_EQ(made.because.empty(), !refuses_contexts(made.calls)) << role.children << pid;
    }
    Environment without = environment;
    without.first_process = nullptr;
    EXPECT_EQ(decide(without, {}, {.pid = 1}).calls, Policy::kForceCpu) << role.children;
    without.policy = "NO_CONTEXT";
    without.first_process = "1";
    for (const uint32_t pid : {1U, 2U}) {
      EXPECT_EQ(decide(without, {}, {.pid = pid}).because, "") << "it applies to all";
    }
  }
}

TEST(ProcessDecision, Rule_SaysWhyThereIsNoContext) {
  const Decision made = decide({.rules = "NO_CONTEXT"});
  EXPECT_EQ(made.calls, Policy::kNoContext);
  EXPECT_EQ(made.because, kIsRuled);
  EXPECT_EQ(made.rule, "NO_CONTEXT");
  EXPECT_EQ(decide({.policy = "NO_CONTEXT"}).because, "");
  EXPECT_EQ(decide({.rules = "VALIDATE"}).because, "");
}

TEST(ProcessDecision, LoadsAndCalls_DifferInTheFirstProcessOfChildrenOnlyAlone) {
  for (const char* policy : {"FORCE_CPU", "VALIDATE", "OFF"}) {
    for (const char* children : {"", "FORCE_CPU", "ONLY"}) {
      for (const uint32_t pid : {0U, 1U, 2U}) {
        const Decision made = decide({.policy = policy, .children = children, .first_process = "1"},
                                     {}, {.pid = pid});
        EXPECT_EQ(made.loads != made.calls, made.because == kIsParent)
            << policy << ' ' << children << ' ' << pid;
      }
    }
  }
}

TEST(ProcessDecision, Children_WithoutAFirstProcessAllAreRestricted) {
  const Decision alone = decide({.policy = "VALIDATE", .children = "FORCE_CPU"});
  EXPECT_EQ(alone.calls, Policy::kForceCpu);
  EXPECT_FALSE(alone.because.empty());
  ASSERT_EQ(alone.mistakes.complaint_count, 1U);
  EXPECT_NE(alone.mistakes.complaints[0].instead.find("CUDAGUARD_ROOT=$$"), std::string_view::npos);
  EXPECT_EQ(decide({.policy = "OFF", .children = "FORCE_CPU"}).mistakes.complaint_count, 0U);
}

TEST(ProcessDecision, Children_BadValueMeansMoreRestriction) {
  for (const char* bad : {"yes", "ONLYY", "VALIDATE"}) {
    const Decision children = decide({.policy = "VALIDATE", .children = bad, .first_process = "4"});
    EXPECT_EQ(children.calls, Policy::kForceCpu) << bad;
    EXPECT_EQ(children.mistakes.complaint_count, 1U) << bad;
  }
  EXPECT_EQ(decide({.policy = "OFF", .children = "yes"}).calls, Policy::kOff);
  for (const char* bad : {"0", "-4", "4x", "x", "99999999999", " 4", "4:", "4:5", ":pid:[4]"}) {
    for (const char* children : {"FORCE_CPU", "ONLY"}) {
      const Environment environment = {
          .policy = "VALIDATE", .children = children, .first_process = bad};
      EXPECT_EQ(decide(environment).mistakes.complaint_count, 1U) << bad;
      for (const uint32_t pid : {1U, 4U, 7U}) {
        EXPECT_TRUE(is_narrowed(environment, {.pid = pid})) << bad;
      }
    }
  }
  EXPECT_EQ(decide({.policy = "VALIDATE", .children = "ONLY"}).calls, Policy::kForceCpu);
}

TEST(ProcessDecision, Children_BadFirstProcessRestrictsAllProcesses) {
  for (const char* children : {"FORCE_CPU", "ONLY", "NO_CONTEXT", "ONLY_CONTEXTS"}) {
    const Decision made =
        decide({.policy = "VALIDATE", .children = children, .first_process = "x"}, {}, {.pid = 4});
    EXPECT_FALSE(allows_cuda(made.calls) && !refuses_contexts(made.calls)) << children;
    ASSERT_EQ(made.mistakes.complaint_count, 1U) << children;
    EXPECT_EQ(made.mistakes.complaints[0].instead, "no process is exempt");
  }
  for (const char* unset : {static_cast<const char*>(nullptr), ""}) {
    const Decision alone = decide({.policy = "VALIDATE", .children = unset, .first_process = "x"});
    EXPECT_EQ(alone.calls, Policy::kValidate);
    EXPECT_EQ(alone.mistakes.complaint_count, 0U);
  }
}

TEST(ProcessDecision, EverythingBad_MakesNoMoreComplaintsThanFit) {
  const std::string more(kMaxReportPath + 1, 'x');
  const Decision config = decide({.policy = "a",
                                  .visible_devices = "c",
                                  .children = "d",
                                  .first_process = "e",
                                  .log = "b",
                                  .report = more.c_str(),
                                  .rules = more.c_str()});
  EXPECT_LE(config.mistakes.complaint_count, std::size(config.mistakes.complaints));
  EXPECT_EQ(config.calls, Policy::kForceCpu);
}

TEST(ProcessDecision, WantsLine_FollowsTheLogLevel) {
  EXPECT_TRUE(wants_line(Log::kDeny, true));
  EXPECT_FALSE(wants_line(Log::kDeny, false));
  EXPECT_TRUE(wants_line(Log::kAll, false));
  EXPECT_FALSE(wants_line(Log::kOff, true));
  EXPECT_FALSE(wants_line(Log::kError, true));
}

TEST(ProcessDecision, EachPolicy_HasAWordAndARow) {
  const std::vector<std::string> words = words_of(Variable::kPolicy);
  ASSERT_EQ(words.size(), std::size(kPolicies));
  for (size_t i = 0; i < words.size(); ++i) {
    const auto policy = static_cast<Policy>(i);
    EXPECT_EQ(name_of(policy), words[i]);
    const Decision config = decide({.policy = words[i].c_str()});
    EXPECT_EQ(config.calls, policy);
    EXPECT_EQ(config.mistakes.complaint_count, 0U);
  }
}

TEST(ProcessDecision, Words_AreInTheOrderOfTheirEnumeration) {
  EXPECT_EQ(name_of(Policy::kValidate), "VALIDATE");
  EXPECT_EQ(name_of(Policy::kClamp), "CLAMP");
  const std::vector<std::string> logs = words_of(Variable::kLog);
  ASSERT_EQ(logs, (std::vector<std::string>{"off", "error", "deny", "all"}));
  EXPECT_EQ(decide({.log = "deny"}).log, Log::kDeny);
  for (size_t i = 0; i < logs.size(); ++i) {
    EXPECT_EQ(decide({.log = logs[i].c_str()}).log, static_cast<Log>(i));
  }
}

/// A process of this executable.
RuleFacts program(std::string_view path) { return {.program = {path, true, false}}; }

TEST(ProcessDecision, Rules_ChooseThePolicyOfAProgram) {
  const Environment environment = {.policy = "FORCE_CPU",
                                   .rules = "VALIDATE program=worker*; CLAMP program=c gpus=1"};
  const Decision router = decide(environment, {.facts = program("/opt/router")});
  EXPECT_EQ(router.calls, Policy::kForceCpu);
  EXPECT_TRUE(router.because.empty()) << "CUDAGUARD_POLICY lifts it";
  EXPECT_EQ(decide(environment, {.facts = program("/opt/worker2")}).calls, Policy::kValidate);
  const Decision clamp = decide(environment, {.facts = program("/c")});
  EXPECT_EQ(clamp.calls, Policy::kClamp);
  EXPECT_EQ(clamp.allow_list.text, "1");
  EXPECT_EQ(decide(environment).calls, Policy::kForceCpu) << "nothing is known";
  const Decision ruled =
      decide({.policy = "OFF", .rules = "FORCE_CPU program=a"}, {.facts = program("/a")});
  EXPECT_EQ(ruled.calls, Policy::kForceCpu);
  EXPECT_EQ(ruled.because, kIsRuled);
  EXPECT_EQ(ruled.rule, "FORCE_CPU program=a");
}

TEST(ProcessDecision, Rules_KeepTheListOfTheEnvironment) {
  const Decision config =
      decide({.visible_devices = "2,5", .rules = "CLAMP", .presets = "gpus=2,5"});
  EXPECT_EQ(config.calls, Policy::kClamp);
  EXPECT_EQ(config.allow_list.text, "2,5");
  EXPECT_EQ(config.allow_list.by, ListBy::kOption);
  const Decision own =
      decide({.visible_devices = "2,5", .rules = "VALIDATE gpus=0", .presets = "gpus=2,5"});
  EXPECT_EQ(own.allow_list.text, "0");
  EXPECT_EQ(own.allow_list.by, ListBy::kRule);
  EXPECT_EQ(decide({.visible_devices = "2", .rules = "OFF"}).allow_list.text, "");
}

TEST(ProcessDecision, Rules_LiftNoForceCpuThatAMistakeHasCaused) {
  for (const Environment& wrong :
       {Environment{.policy = "VALIDATES", .rules = "OFF"},
        Environment{.visible_devices = "x", .rules = "OFF"},
        Environment{.visible_devices = "-1", .rules = "OFF"},
        Environment{.policy = "FORCE_CPU", .visible_devices = "2", .rules = "OFF"},
        Environment{.policy = "OFF", .rules = "OFF; VALIDATES"},
        Environment{.policy = "VALIDATE", .rules = "VALIDATE gpus=0 & VALIDATE gpus=1"}}) {
    const Decision config = decide(wrong);
    EXPECT_EQ(config.calls, Policy::kForceCpu) << wrong.rules;
  }
  const Decision config = decide({.policy = "OFF", .rules = "OFF; VALIDATES"});
  EXPECT_EQ(config.mistakes.rule.why, RuleMistake::Why::kPolicy);
  EXPECT_EQ(config.mistakes.rule_place, "CUDAGUARD_RULES");
  const std::string many(kMaxRules + 1, ' ');
  EXPECT_EQ(decide({.policy = "OFF", .rules = many.c_str()}).calls, Policy::kForceCpu);
  EXPECT_EQ(decide({.policy = "OFF", .rules = many.c_str() + 1}).calls, Policy::kOff);
}

TEST(ProcessDecision, Rules_KnownRulingCountsInPlaceOfTheFacts) {
  const Environment environment = {.visible_devices = "2,5", .rules = "OFF program=a"};
  const Ruling known = rule_for(environment, program("/a"));
  EXPECT_EQ(decide(environment, {.facts = program("/b")}).calls, Policy::kValidate);
  EXPECT_EQ(decide(environment, {.facts = program("/b"), .known = &known}).calls, Policy::kOff);
  const Ruling other = rule_for(environment, program("/b"));
  EXPECT_EQ(decide(environment, {.known = &other}).allow_list.text, "2,5");
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

TEST(ProcessDecision, Machine_DecidesIfTheEnvironmentIsSilent) {
  for (const PolicyRow& row : kPolicies) {
    const Policy policy = row.policy;
    const MachineRuling file = machine(policy);
    EXPECT_EQ(decide({}, {.machine = &file}).calls, policy);
    EXPECT_EQ(decide({.policy = "OFF"}, {.machine = &file}, kPrivileged).calls, policy);
  }
  const MachineRuling none = machine(Policy::kForceCpu);
  EXPECT_EQ(decide({}, {.machine = &none}).because, "/etc/cudaguard.conf:7");
  const MachineRuling list = machine(Policy::kValidate, "0,1");
  EXPECT_EQ(decide({}, {.machine = &list}).allow_list.text, "0,1");
  EXPECT_EQ(decide({}, {.machine = &list}).allow_list.place, "/etc/cudaguard.conf:7");
}

TEST(ProcessDecision, Machine_EnvironmentNarrows) {
  const MachineRuling all = machine(Policy::kOff);
  EXPECT_EQ(decide({.policy = "FORCE_CPU"}, {.machine = &all}).calls, Policy::kForceCpu);
  EXPECT_EQ(decide({.policy = "nonsense"}, {.machine = &all}).calls, Policy::kForceCpu);
  EXPECT_EQ(decide({.policy = "CLAMP"}, {.machine = &all}).calls, Policy::kClamp);
  EXPECT_EQ(decide({.visible_devices = "2"}, {.machine = &all}).allow_list.text, "2");
  EXPECT_EQ(decide({.visible_devices = "2"}, {.machine = &all}).allow_list.place, "");
  EXPECT_EQ(decide({.visible_devices = ""}, {.machine = &all}).calls, Policy::kForceCpu);
  EXPECT_EQ(decide({.rules = "FORCE_CPU"}, {.machine = &all}).calls, Policy::kForceCpu);
  const MachineRuling list = machine(Policy::kValidate, "0,1");
  EXPECT_EQ(decide({.visible_devices = "1"}, {.machine = &list}).allow_list.text, "1");
  const Environment children = {.children = "FORCE_CPU", .first_process = "41"};
  EXPECT_FALSE(is_narrowed(children, {.pid = 41}, {.machine = &all}));
  EXPECT_TRUE(is_narrowed(children, {.pid = 42}, {.machine = &all}));
}

TEST(ProcessDecision, Machine_SaysWhyThereIsNoContext) {
  for (const bool may_widen : {false, true}) {
    MachineRuling file = machine(Policy::kNoContext, {}, may_widen);
    file.ruling.rule = "NO_CONTEXT";
    const Decision made = decide({}, {.machine = &file});
    EXPECT_EQ(made.calls, Policy::kNoContext);
    EXPECT_EQ(made.because, "/etc/cudaguard.conf:7");
    EXPECT_EQ(made.may_lift, may_widen);
    EXPECT_FALSE(decide({}, {.machine = &file}, kPrivileged).may_lift);
    EXPECT_EQ(decide({.policy = "VALIDATE"}, {.machine = &file}).calls,
              may_widen ? Policy::kValidate : Policy::kNoContext);
    EXPECT_EQ(decide({.policy = "FORCE_CPU"}, {.machine = &file}).calls, Policy::kForceCpu);
  }
  const MachineRuling all = machine(Policy::kValidate);
  EXPECT_EQ(decide({.policy = "NO_CONTEXT"}, {.machine = &all}).calls, Policy::kNoContext);
  EXPECT_EQ(decide({.policy = "NO_CONTEXT"}, {.machine = &all}).because, "");
}

TEST(ProcessDecision, Machine_EnvironmentDoesNotWiden) {
  const MachineRuling none = machine(Policy::kForceCpu);
  for (const Environment& wider :
       {Environment{.policy = "OFF"}, Environment{.policy = "VALIDATE"},
        Environment{.visible_devices = "0"}, Environment{.rules = "OFF"}}) {
    const Decision config = decide(wider, {.machine = &none});
    EXPECT_EQ(config.calls, Policy::kForceCpu);
    EXPECT_EQ(config.because, "/etc/cudaguard.conf:7");
  }
  const MachineRuling list = machine(Policy::kClamp, "0,1");
  EXPECT_EQ(decide({.policy = "OFF"}, {.machine = &list}).calls, Policy::kClamp);
  EXPECT_EQ(decide({.policy = "OFF"}, {.machine = &list}).allow_list.text, "0,1");
  EXPECT_EQ(decide({.policy = "VALIDATE"}, {.machine = &list}).allow_list.text, "0,1");
  EXPECT_EQ(decide({.visible_devices = "2"}, {.machine = &list}).calls, Policy::kForceCpu);
  EXPECT_EQ(decide({.rules = "VALIDATE gpus=2"}, {.machine = &list}).calls, Policy::kForceCpu);
}

TEST(ProcessDecision, Machine_EnvironmentMayWidenIfTheFileSaysSo) {
  const MachineRuling none = machine(Policy::kForceCpu, {}, true);
  EXPECT_EQ(decide({}, {.machine = &none}).calls, Policy::kForceCpu);
  EXPECT_EQ(decide({.policy = "OFF"}, {.machine = &none}).calls, Policy::kOff);
  // The message says what would lift the rule.
  EXPECT_TRUE(decide({}, {.machine = &none}).may_lift);
  EXPECT_FALSE(decide({}, {.machine = &none}, kPrivileged).may_lift);
  const MachineRuling fixed = machine(Policy::kForceCpu);
  EXPECT_FALSE(decide({}, {.machine = &fixed}).may_lift);
  EXPECT_EQ(decide({.policy = "OFF"}, {.machine = &none}, kPrivileged).calls, Policy::kForceCpu);
  // CUDAGUARD_CHILDREN names no policy, so the rule's applies, to the first process alone.
  const MachineRuling list = machine(Policy::kValidate, "0,1", true);
  const Environment children = {.children = "FORCE_CPU", .first_process = "41"};
  const Decision decision = decide(children, {.machine = &list}, {.pid = 41});
  EXPECT_EQ(decision.calls, Policy::kValidate);
  EXPECT_EQ(decision.allow_list.text, "0,1");
  EXPECT_TRUE(is_narrowed(children, {.pid = 42}, {.machine = &list}));
}

TEST(ProcessDecision, Machine_UnusableFileMeansForceCpuAndIsNamed) {
  MachineRuling file;
  file.place = file.file = "/etc/cudaguard.conf";
  file.unusable = "root does not own it";
  for (const auto& [environment, process] :
       {std::pair{Environment{}, ProcessIdentity{}},
        std::pair{Environment{.policy = "OFF"}, ProcessIdentity{}},
        std::pair{Environment{.policy = "OFF"}, kPrivileged}}) {
    const Decision config = decide(environment, {.machine = &file}, process);
    EXPECT_EQ(config.calls, Policy::kForceCpu);
    EXPECT_EQ(config.mistakes.unused_file, "/etc/cudaguard.conf");
    EXPECT_STREQ(config.mistakes.why_unused, "root does not own it");
  }
}

TEST(ProcessDecision, DecidedBy_IsTheRuleThatGivesThePolicy) {
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
    EXPECT_EQ(decide(one.environment, {.machine = &one.file}).decided_by, one.decided_by);
  }
  EXPECT_EQ(decide({.rules = "VALIDATES"}).decided_by, "");
  const MachineRuling file = machine(Policy::kValidate);
  const Environment children = {.children = "FORCE_CPU", .first_process = "41"};
  EXPECT_EQ(decide(children, {.machine = &file}).decided_by, line);
  EXPECT_EQ(decide(children, {.machine = &file}, {.pid = 42}).decided_by, "");
}

TEST(ProcessDecision, Machine_ReportIsKeptAndLogIsADefault) {
  MachineRuling file = machine(Policy::kValidate);
  file.ruling.report = "/var/log/gpu";
  file.ruling.log = 3;
  const Decision config = decide({.log = "off", .report = "/tmp/x"}, {.machine = &file});
  EXPECT_EQ(config.report, "/var/log/gpu");
  EXPECT_EQ(config.log, Log::kOff);
  EXPECT_EQ(decide({.log = "off"}, {.machine = &file}, kPrivileged).log, Log::kAll);
  file.ruling.mistake.why = RuleMistake::Why::kPolicy;
  EXPECT_EQ(decide({}, {.machine = &file}).mistakes.rule_place, "/etc/cudaguard.conf:7");
}

}  // namespace
}  // namespace cudaguard

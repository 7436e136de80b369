// SPDX-License-Identifier: Apache-2.0
#include "policy/decision.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/transcript.h"

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

/// What a process gets, as decisions.txt has it.
std::string decided(const std::string& inputs) {
  Environment environment;
  RuleInputs rules;
  ProcessIdentity process;
  MachineRuling file;
  char place[64];
  const auto entries = entries_of(inputs);
  for (const auto& [key, text] : entries) {
    const Key is(key);
    const char* value = text.c_str();
    if (is("policy")) environment.policy = value;
    if (is("list")) environment.visible_devices = value;
    if (is("children")) environment.children = value;
    if (is("root")) environment.first_process = value;
    if (is("log")) environment.log = value;
    if (is("report")) environment.report = value;
    if (is("rules")) environment.rules = value;
    if (is("presets")) environment.presets = value;
    if (is("program")) rules.facts.program = {value, true, false};
    if (is("pid")) process.pid = static_cast<uint32_t>(std::stoul(value));
    if (is("ns")) process.pid_namespace = value;
    if (is("forked")) process.forked = true;
    if (is("privileged")) process.privileged = true;
    if (is("file")) {
      add_rules_of_file(file, place, "/etc/conf", value, {});
      rules.machine = &file;
    }
  }
  const Decision made = decide(environment, rules, process);
  const Mistakes& mistakes = made.mistakes;
  std::string text(name_of(made.calls));
  const auto put = [&](const char* name, std::string_view value, bool some = true) {
    if (some && !value.empty()) text.append(name).append(value);
  };
  put(", loads ", name_of(made.loads), made.loads != made.calls);
  constexpr const char* kBy[] = {"by variable", "by option", "by rule"};
  put(", list ", made.allow_list.text);
  put(" ", kBy[static_cast<int>(made.allow_list.by)], !made.allow_list.text.empty());
  put(" at ", made.allow_list.place);
  put(", because ", made.because);
  put(", rule ", made.rule);
  put(", by ", made.decided_by);
  put(", report ", made.report);
  put(", log ", words_of(Variable::kLog)[static_cast<size_t>(made.log)], made.log != Log::kDeny);
  put(", may lift", " it", made.may_lift);
  put(", in", " run", made.in_run);
  put(", children", " by option", made.children_by_option);
  put(", bad list ", mistakes.bad_list, mistakes.list.why != ListError::Why::kNone);
  put(", bad rule of ", mistakes.rule_place, mistakes.rule.why != RuleMistake::Why::kNone);
  for (size_t i = 0; i < mistakes.complaint_count; ++i) {
    const Complaint& one = mistakes.complaints[i];
    put(one.accepted.empty() ? ", unused " : ", wrong ", one.variable);
    put("=", one.value);
    put("; ", one.instead);
    for (const VariableRow& row : kVariables) {
      EXPECT_TRUE(one.accepted.empty() || one.variable != row.name || one.accepted == row.accepted);
    }
  }
  return text;
}

TEST(ProcessDecision, IsAsWritten) {
  expect_as_written(CG_DECISIONS,
                    [](const std::string& inputs, const std::string&) { return decided(inputs); });
  EXPECT_EQ(decided("policy=\xff"), "FORCE_CPU, wrong CUDAGUARD_POLICY=\xff; FORCE_CPU applies");
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

TEST(ProcessDecision, TooLongListOrRules_MeanForceCpu) {
  const std::string list(kMaxVisibleDevices + 1, '1');
  const Decision made = decide({.visible_devices = list.c_str()});
  EXPECT_EQ(made.calls, Policy::kForceCpu);
  EXPECT_EQ(made.mistakes.list.why, ListError::Why::kTooLong);
  const std::string rules(kMaxRules + 1, ' ');
  EXPECT_EQ(decide({.policy = "OFF", .rules = rules.c_str()}).calls, Policy::kForceCpu);
  EXPECT_EQ(decide({.policy = "OFF", .rules = rules.c_str() + 1}).calls, Policy::kOff);
}

TEST(ProcessDecision, FirstProcess_IsAProcessIdAndANamespace) {
  EXPECT_EQ(namespace_of_first_process({.first_process = "1:pid:[4026531836]"}),
            "pid:[4026531836]");
  const Decision made = decide({.children = "only", .first_process = "41"});
  EXPECT_EQ(made.children, Children::kOnly);
  EXPECT_EQ(made.first_process, 41U);
  EXPECT_EQ(decide({.children = "force-cpu"}).children, Children::kForceCpu);
  for (const std::string bad :
       {"0", "-4", "4x", "x", "99999999999", " 4", "4:", "4:5", ":pid:[4]"}) {
    for (const std::string children : {"FORCE_CPU", "ONLY"}) {
      for (const char* pid : {"1", "4", "7"}) {
        const std::string made =
            decided("policy=VALIDATE|children=" + children + "|root=" + bad + "|pid=" + pid);
        EXPECT_TRUE(made.starts_with("FORCE_CPU")) << bad << made;
        EXPECT_TRUE(made.ends_with(", wrong CUDAGUARD_ROOT=" + bad + "; no process is exempt"))
            << made;
      }
    }
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
    EXPECT_TRUE(decided("file=" + words[i]).starts_with(words[i]));
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

TEST(ProcessDecision, Rules_KnownRulingCountsInPlaceOfTheFacts) {
  const Environment environment = {.visible_devices = "2,5", .rules = "OFF program=a"};
  const Ruling known = rule_for(environment, program("/a"));
  EXPECT_EQ(decide(environment, {.facts = program("/b")}).calls, Policy::kValidate);
  EXPECT_EQ(decide(environment, {.facts = program("/b"), .known = &known}).calls, Policy::kOff);
  const Ruling other = rule_for(environment, program("/b"));
  EXPECT_EQ(decide(environment, {.known = &other}).allow_list.text, "2,5");
}

TEST(ProcessDecision, Machine_UnusableFileMeansForceCpuAndIsNamed) {
  MachineRuling file;
  file.place = file.file = "/etc/cudaguard.conf";
  file.unusable = "root does not own it";
  for (const auto& [environment, process] :
       {std::pair{Environment{}, ProcessIdentity{}},
        std::pair{Environment{.policy = "OFF"}, ProcessIdentity{}},
        std::pair{Environment{.policy = "OFF"}, ProcessIdentity{.privileged = true}}}) {
    const Decision config = decide(environment, {.machine = &file}, process);
    EXPECT_EQ(config.calls, Policy::kForceCpu);
    EXPECT_EQ(config.mistakes.unused_file, "/etc/cudaguard.conf");
    EXPECT_STREQ(config.mistakes.why_unused, "root does not own it");
  }
}

}  // namespace
}  // namespace cudaguard

// SPDX-License-Identifier: Apache-2.0
#include "policy/process_rules.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "policy/variables.h"
#include "shim/guard/text/message.h"

namespace cudaguard {
namespace {

using Why = RuleMistake::Why;
constexpr RuleSource kFile = RuleSource::kFile;
constexpr RuleSource kOption = RuleSource::kOption;
constexpr RuleSource kVariable = RuleSource::kVariable;

RuleFact known(std::string_view text) { return {text, true, false}; }

constexpr uint32_t kGroups[] = {1000, 44};

/// A process of alice, who is in the group "gpu".
RuleFacts facts_of(std::string_view program = "/usr/bin/python3.11") {
  using namespace std::string_view_literals;
  RuleFacts facts;
  facts.program = known(program);
  facts.args = known("python3\0-m\0jupyter lab\0"sv);
  facts.cgroup = known("0::/user.slice/user-1000.slice/session-2.scope\n");
  facts.user_file =
      known("root:x:0:0:root:/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\n");
  facts.group_file = known("root:x:0:\nalicia:x:7:\nalice:x:1000:\ngpu:x:44:bob\ndisk:x:6:alice\n");
  facts.knows_user = true;
  facts.user = 1000;
  facts.knows_groups = true;
  facts.groups = kGroups;
  return facts;
}

Ruling decided(std::string_view text, const RuleFacts& facts = facts_of(),
               RuleSource source = kFile) {
  return decide_by_rules(text, source, facts, {});
}

std::vector<ProcessRule> rules_in(std::string_view text, RuleSource source = kFile) {
  std::vector<ProcessRule> rules;
  ProcessRule rule;
  for (RuleText rest = {text, source}; take_rule(rest, rule);) rules.push_back(rule);
  return rules;
}

std::string mistake_of(const std::string& text, RuleSource source = kFile) {
  const std::vector<ProcessRule> rules = rules_in(text, source);
  char buffer[kMaxLine];
  Text out(buffer, sizeof buffer);
  if (!rules.empty()) put_rule_mistake(out, rules[0].mistake);
  return std::string(out.view());
}

TEST(ProcessRules, RuleHasItsLineTextAndValues) {
  const auto rules = rules_in(
      "# login node\n\n force-cpu\r\n"
      "VALIDATE program=/usr/bin/nvidia-smi gpus=0,1 # all users\n"
      "CLAMP args=\"a b;#c\"; OFF user=root");
  ASSERT_EQ(rules.size(), 4U);
  EXPECT_EQ(rules[0].line, 3U);
  EXPECT_EQ(rules[0].text, "force-cpu");
  EXPECT_EQ(rules[0].policy, Policy::kForceCpu);
  EXPECT_EQ(rules[1].line, 4U);
  EXPECT_EQ(rules[1].text, "VALIDATE program=/usr/bin/nvidia-smi gpus=0,1");
  EXPECT_EQ(rules[1].value(RuleKey::kProgram), "/usr/bin/nvidia-smi");
  EXPECT_EQ(rules[1].value(RuleKey::kGpus), "0,1");
  EXPECT_EQ(rules[2].value(RuleKey::kArgs), "a b;#c");
  EXPECT_EQ(rules[3].line, 5U);
  EXPECT_EQ(rules[3].policy, Policy::kOff);
  for (const ProcessRule& rule : rules) EXPECT_EQ(rule.mistake.why, Why::kNone) << rule.text;
}

TEST(ProcessRules, MistakesSayWhatIsAccepted) {
  const char* quote =
      "args= has a quote that is not around the whole value (accepted: args=\"...\")";
  const char* hash =
      "args= has a # without quotes; add a blank before it, or quotes around the value";
  const std::string no_number =
      " is not accepted (accepted: a name, or a number from 0 to 4294967294)";
  const char* bom = "the line begins with a byte order mark; remove it";
  const std::string accepted =
      "\" is not accepted (accepted: " + std::string(row_of(Variable::kPolicy).accepted) + ")";
  std::string needed;
  for (const PolicyRow& row : kPolicies) {
    if (!allows_cuda(row.policy)) continue;
    needed.append(needed.empty() ? "gpus= needs " : " or ").append(name_of(row.policy));
  }
  const struct {
    const char* rule;
    std::string sentence;
    RuleSource source = kFile;
  } cases[] = {
      {"OFF#x", "\"OFF#x" + accepted},
      {"OFF user#=a",
       "\"user#\" is not accepted (accepted: program, args, user, group, cgroup, gpus, "
       "log, report, environment)"},
      {"\xef\xbb\xbf# x", bom},
      {"\xef\xbb\xbfOFF\n", bom, kVariable},
      {"VALIDATES", "\"VALIDATES" + accepted},
      {"program=x", "\"program=x" + accepted},
      {"OFF bash", "\"bash\" is not accepted (accepted: KEY=VALUE)"},
      {"OFF usr=bob",
       "\"usr\" is not accepted (accepted: program, args, user, group, cgroup, gpus, log, report, "
       "environment)"},
      {"OFF user=", "user= needs a value"},
      {"OFF args=\"\"", "args= needs a value"},
      {"OFF user=a user=b", "user= is given twice"},
      {"OFF args=\"a b", quote},
      {"OFF args=\"a\"b", quote},
      {"OFF args=\"a\"#b", quote},
      {"OFF args=\"a\nb\"", quote},
      {"OFF args=a\"", quote},
      {"OFF args=/bin/\"a\"", quote},
      {"OFF args=\"a\"\"b\"", quote},
      {"OFF args='a'", "args= begins with a single quote (accepted: args=\"...\")"},
      {"OFF args='a b'", "args= begins with a single quote (accepted: args=\"...\")", kVariable},
      {"OFF args=a#b", hash},
      {"OFF args=#b", hash},
      {"OFF args=a# b", hash, kOption},
      {"OFF gpus=0", needed},
      {"FORCE_CPU gpus=0", needed},
      {"CLAMP gpus=-1", "gpus=\"-1\" allows no GPU; write FORCE_CPU instead"},
      {"VALIDATE gpus=0,0", "gpus=\"0,0\": entry 2 \"0\" repeats a GPU (accepted: each GPU once)"},
      {"CLAMP gpus=0,x",
       "gpus=\"0,x\": entry 2 \"x\" is not accepted (accepted: index, GPU-..., MIG-...)"},
      {"OFF user=4294967295", "user=\"4294967295\"" + no_number},
      {"OFF user=99999999999", "user=\"99999999999\"" + no_number},
      {"OFF user=18446744073709551616", "user=\"18446744073709551616\"" + no_number, kOption},
      {"OFF group=\"4294967296\"", "group=\"4294967296\"" + no_number, kVariable},
      {"OFF group=-1", "group=\"-1\"" + no_number},
      {"OFF user=+1000", "user=\"+1000\"" + no_number},
      {"OFF log=loud", "log=\"loud\" is not accepted (accepted: off, error, deny, all)"},
      {"OFF report=a.jsonl",
       "report=\"a.jsonl\" is not accepted (accepted: an absolute path of at most 4095 bytes, "
       "or syslog:)"},
      {"OFF environment=free", "environment=\"free\" is not accepted (accepted: may-widen)"},
      {"OFF environment=may-widen", "environment= works only in /etc/cudaguard.conf", kOption},
      {"OFF environment=may-widen", "environment= works only in /etc/cudaguard.conf", kVariable},
      {"OFF & OFF", "\"&\" is not accepted (accepted: KEY=VALUE)"},
      {"OFF & OFF", "\"&\" is not accepted (accepted: KEY=VALUE)", kOption},
  };
  for (const auto& one : cases) {
    EXPECT_EQ(mistake_of(one.rule, one.source), one.sentence) << one.rule;
    EXPECT_EQ(decided(one.rule, facts_of(), one.source).policy, Policy::kForceCpu) << one.rule;
  }
  EXPECT_EQ(mistake_of("OFF environment=may-widen"), "");
}

/// The sanitizer finds such a read only behind memory of the text's size.
TEST(ProcessRules, NothingBehindTheEndIsRead) {
  for (const std::string text : {"OFF", "OFF user", "OFF program=python3", "OFF args=\"a", "# x"}) {
    const std::vector<char> bytes(text.begin(), text.end());
    for (const RuleSource source : {kFile, kOption, kVariable}) {
      decided({bytes.data(), bytes.size()}, facts_of(), source);
    }
  }
}

TEST(ProcessRules, QuotedValueCanHaveEachCharacter) {
  for (const char* text : {"OFF args=\"a#b;c'd\"", "OFF args=\"'a'\"", "OFF args=a'b # c\t\r\n",
                           "# \"a 'b #c \xc3\xa4\r\nOFF", "OFF\t\r\n\r\n", "OFF # \xef\xbb\xbf"}) {
    EXPECT_EQ(mistake_of(text), "") << text;
    EXPECT_EQ(rules_in(text).at(0).policy, Policy::kOff) << text;
    EXPECT_EQ(rules_in(text).size(), 1U) << text;
  }
}

TEST(ProcessRules, ControlCharacterIsAMistakeOfItsLine) {
  using namespace std::string_literals;
  for (const std::string& wrong :
       {"\x1b"s, "\0"s, "\x7f"s, "\r"s, "\v"s, "\f"s, "\r\r"s, "\x08"s}) {
    for (const std::string& line :
         {"OFF"s + wrong, "OFF "s + wrong, wrong + "OFF"s, wrong, "OFF # "s + wrong, "#"s + wrong,
          "# all"s + wrong + "FORCE_CPU user=alice"s, "OFF args=\"a"s + wrong + "b\""s,
          "OFF; OFF"s + wrong, " \t"s + wrong + " "s}) {
      for (const RuleSource source : {kFile, kOption, kVariable}) {
        const std::string text = "OFF\n"s + line + "\n\n"s;
        const bool ends = wrong == "\r" && line.ends_with("\r");
        const Ruling ruling = decided(text, facts_of(), source);
        EXPECT_EQ(ruling.mistake.why, ends ? Why::kNone : Why::kControl) << text;
        EXPECT_EQ(ends ? 2U : ruling.line, 2U) << text;
        EXPECT_EQ(decided(line, facts_of(), source).mistake.why, Why::kControl)
            << "no LF: " << line;
        // In the file, a later line decides.
        EXPECT_EQ(decided(text + "OFF"s).mistake.why, Why::kNone) << text;
      }
    }
  }
}

TEST(ProcessRules, LastRuleThatMatchesDecides) {
  const char* text =
      "FORCE_CPU\n"
      "VALIDATE program=/usr/bin/nvidia-smi\n"
      "OFF user=root\n";
  EXPECT_EQ(decided(text).line, 1U);
  const Ruling smi = decided(text, facts_of("/usr/bin/nvidia-smi"));
  EXPECT_EQ(smi.policy, Policy::kValidate);
  EXPECT_EQ(smi.line, 2U);
  EXPECT_EQ(smi.rule, "VALIDATE program=/usr/bin/nvidia-smi");
  EXPECT_FALSE(smi.unsure);
  EXPECT_FALSE(decided("OFF user=root").decided);
  EXPECT_FALSE(decided("").decided);
}

TEST(ProcessRules, KeysMatch) {
  for (const char* yes :
       {"program=python3*", "program=/usr/bin/python3.11", "program=*", "program=/usr/*",
        "args=\"python3 -m jupyter lab\"", "args=*jupyter*", "user=alice", "user=1000", "group=gpu",
        "group=44", "group=alice", "cgroup=/user.slice/*", "cgroup=*session-?.scope",
        "program=python[0-9]*", "program=[!a]*", "program=* user=alice group=gpu"}) {
    EXPECT_TRUE(decided("OFF " + std::string(yes)).decided) << yes;
    EXPECT_FALSE(decided("OFF " + std::string(yes)).unsure) << yes;
  }
  for (const char* no :
       {"program=python3", "program=bin/python3.11", "program=/usr/bin/python3.1", "args=jupyter",
        "user=root", "user=100", "user=4294967294", "group=disk", "group=7", "cgroup=/user.slice",
        "program=* user=root", "user=alice group=disk"}) {
    EXPECT_FALSE(decided("OFF " + std::string(no)).decided) << no;
  }
}

/// A process whose user and one group are in no file, like alice's after userdel and groupdel.
RuleFacts facts_without_names() {
  RuleFacts facts = facts_of();
  facts.user_file = known("root:x:0:0:root:/root:/bin/sh\n");
  facts.group_file = known("root:x:0:\ngpu:x:44:bob\n:x:1000:\nalice:x:y:\n");
  return facts;
}

TEST(ProcessRules, UnknownFactCountsAsTheNarrowerCase) {
  // What LDAP alone knows, more than a name, and a process without /proc.
  const RuleFacts facts = facts_without_names();
  for (const char* unknown : {"user=carol", "group=staff", "user=alice:x", "user=alice"}) {
    const std::string rule = unknown;
    EXPECT_EQ(decided("OFF\nFORCE_CPU " + rule, facts).policy, Policy::kForceCpu) << rule;
    EXPECT_TRUE(decided("OFF\nFORCE_CPU " + rule, facts).unsure) << rule;
    EXPECT_EQ(decided("FORCE_CPU\nOFF " + rule, facts).policy, Policy::kForceCpu) << rule;
    EXPECT_EQ(decided("OFF\nFORCE_CPU " + rule + "\nVALIDATE group=gpu", facts).policy,
              Policy::kValidate);
  }
  for (const char* rule : {"program=x", "args=x", "user=1", "group=1", "cgroup=x"}) {
    EXPECT_EQ(decided("OFF\nFORCE_CPU " + std::string(rule), {}).policy, Policy::kForceCpu);
    EXPECT_EQ(decided("FORCE_CPU\nOFF " + std::string(rule), {}).policy, Policy::kForceCpu);
  }
}

TEST(ProcessRules, UnknownNameIsNotThatOfAProcessWithAnotherName) {
  for (const char* name : {"user=carol", "group=staff", "group=staff user=alice", "user=alice:x"}) {
    const Ruling ruling = decided("OFF\nFORCE_CPU " + std::string(name));
    EXPECT_EQ(ruling.policy, Policy::kOff) << name;
    EXPECT_FALSE(ruling.unsure) << name;
    EXPECT_EQ(ruling.unknown.name, "") << name;
    EXPECT_FALSE(decided("OFF " + std::string(name)).decided) << name;
  }
  // Each of these may be what the file does not show.
  RuleFacts facts = facts_of();
  facts.user_file.cut = true;
  EXPECT_FALSE(decided("OFF user=carol", facts).decided);
  facts.user_file.text.remove_suffix(1);
  EXPECT_TRUE(decided("OFF user=carol", facts).unsure);
  facts.user_file = {};
  EXPECT_TRUE(decided("OFF user=carol", facts).unsure);
  facts = facts_of();
  facts.knows_user = false;
  EXPECT_TRUE(decided("OFF user=carol", facts).unsure);
}

TEST(ProcessRules, UnknownNameIsSaid) {
  const RuleFacts facts = facts_without_names();
  const auto name = [&](const char* text) { return decided(text, facts).unknown; };
  EXPECT_EQ(name("OFF\nFORCE_CPU user=ci program=*").name, "ci");
  EXPECT_EQ(name("FORCE_CPU\nOFF group=44\nOFF group=staff").name, "staff");
  EXPECT_EQ(name("OFF group=staff").key, RuleKey::kGroup);
  EXPECT_EQ(name("OFF user=ci\nOFF group=staff").name, "ci");
  EXPECT_EQ(name("OFF\nFORCE_CPU user=ci\nVALIDATE").name, "");
  EXPECT_EQ(name("OFF user=ci program=no").name, "");
  EXPECT_EQ(name("OFF user=gpu").name, "gpu");  // /etc/group names no user
  EXPECT_EQ(name("OFF user=1000").name, "");
}

TEST(ProcessRules, CutFactMatchesOnlyWhatIsCertain) {
  RuleFacts facts = facts_of();
  facts.args.cut = true;
  EXPECT_FALSE(decided("OFF args=python3*", facts).unsure);
  EXPECT_TRUE(decided("OFF args=*lab", facts).unsure);
  EXPECT_TRUE(decided("OFF args=nothing", facts).unsure);
  facts.program.cut = true;
  EXPECT_TRUE(decided("OFF program=python*", facts).unsure);
  facts.group_file = {"a:x:1:\ngpu:x:4", true, true};
  EXPECT_TRUE(decided("OFF group=gpu", facts).unsure);
}

TEST(ProcessRules, CgroupRuleCountsOnlyIfItMatchesEachHierarchy) {
  // Version 1: Slurm's job, whose user has made a longer path of systemd's.
  const char* const slurm =
      "9:memory:/slurm/uid_7/job_9\n4:cpu,cpuacct:/slurm\n3:pids:/\n1:name=systemd:/a/longer/path/"
      "of:it\n";
  const struct {
    const char* lines;
    const char* glob;
    bool decided;
    bool unsure;
  } cases[] = {
      {slurm, "/slurm/*", true, true},
      {slurm, "/a/*", true, true},
      {slurm, "/*", true, false},
      {slurm, "/other", false, false},
      {slurm, "/slurm", false, false},  // The job is below it.
      {slurm, "/", false, false},
      {"9:memory:/slurm/uid_7/job_9\n4:cpu:/slurm/uid_7\n3:pids:/\n0::/\n", "*/job_9", true, false},
      {"9:memory:/slurm/a\n4:cpu:/slurm/ab\n", "*/ab", true, true},
      {"1:cpu:/\n0::/", "/", true, false},
      {"0::/a:b/c", "/a:b/c", true, false},
      {"", "*", true, true},
      {"0", "*", true, true},
      {"0::\n\n", "*", true, true},
  };
  for (const auto& one : cases) {
    RuleFacts facts = facts_of();
    facts.cgroup = known(one.lines);
    const Ruling ruling = decided("OFF cgroup=" + std::string(one.glob), facts);
    EXPECT_EQ(ruling.decided, one.decided) << one.lines << one.glob;
    EXPECT_EQ(ruling.unsure, one.unsure) << one.lines << one.glob;
    facts.cgroup.cut = true;
    EXPECT_TRUE(decided("OFF cgroup=" + std::string(one.glob), facts).unsure) << one.glob;
  }
}

TEST(ProcessRules, UnknownRuleWithAListGivesTheEntriesOfBoth) {
  const Ruling part =
      decided("VALIDATE gpus=0,1,2\nVALIDATE user=carol gpus=2,1", facts_without_names());
  EXPECT_EQ(part.gpus, "2,1");
  const Ruling whole = decided("VALIDATE\nVALIDATE user=carol gpus=3", facts_without_names());
  EXPECT_EQ(whole.gpus, "3");
  const Ruling split =
      decided("VALIDATE gpus=0\nVALIDATE user=carol gpus=1", facts_without_names());
  EXPECT_EQ(split.policy, Policy::kForceCpu);
  EXPECT_TRUE(split.split);
  EXPECT_EQ(decided("OFF\nCLAMP user=carol gpus=1", facts_without_names()).gpus, "1");
}

TEST(ProcessRules, UnknownRuleLeavesTheEnvironmentNoMoreThanBothCases) {
  const std::string may = " environment=may-widen";
  EXPECT_FALSE(
      decided("FORCE_CPU" + may + "\nFORCE_CPU user=carol", facts_without_names()).may_widen);
  EXPECT_FALSE(decided("FORCE_CPU\nFORCE_CPU user=carol" + may, facts_without_names()).may_widen);
  EXPECT_FALSE(
      decided("VALIDATE gpus=0\nFORCE_CPU user=carol" + may, facts_without_names()).may_widen);
  EXPECT_TRUE(
      decided("FORCE_CPU" + may + "\nFORCE_CPU user=carol" + may, facts_without_names()).may_widen);
}

TEST(ProcessRules, LineWithAMistakeIsForceCpuForEachProcess) {
  const Ruling wrong = decided("OFF\nOFF usr=bob");
  EXPECT_EQ(wrong.policy, Policy::kForceCpu);
  EXPECT_EQ(wrong.line, 2U);
  EXPECT_EQ(wrong.mistake.why, Why::kKey);
  // A later line decides as if the mistake were not there.
  EXPECT_EQ(decided("OFF usr=bob\nVALIDATE user=alice").policy, Policy::kValidate);
  // In the variable, a later rule may belong to another list.
  EXPECT_EQ(decided("OFF usr=bob\nVALIDATE", facts_of(), kVariable).policy, Policy::kForceCpu);
}

TEST(ProcessRules, EachListOfTheVariableNarrows) {
  const auto policy = [](const char* text) { return decided(text, facts_of(), kVariable).policy; };
  EXPECT_EQ(policy("OFF & VALIDATE"), Policy::kValidate);
  EXPECT_EQ(policy("FORCE_CPU; OFF program=python* & VALIDATE"), Policy::kValidate);
  EXPECT_EQ(policy("FORCE_CPU & OFF"), Policy::kForceCpu);
  EXPECT_EQ(policy("OFF & FORCE_CPU"), Policy::kForceCpu);
  EXPECT_EQ(policy("OFF & FORCE_CPU user=root"), Policy::kForceCpu) << "no rule matches";
  EXPECT_EQ(policy("OFF &"), Policy::kForceCpu);
  EXPECT_EQ(policy("OFF & ; & OFF"), Policy::kForceCpu);
  EXPECT_EQ(policy("OFF\n&\nOFF"), Policy::kOff);
  EXPECT_EQ(decided("VALIDATE gpus=0,1 & CLAMP gpus=1", facts_of(), kVariable).gpus, "1");
}

TEST(ProcessRules, KeysOfATextAreThoseOfItsRules) {
  EXPECT_EQ(keys_of("OFF user=a # group=b\nOFF cgroup=x gpus", kFile),
            bit_of(RuleKey::kUser) | bit_of(RuleKey::kCgroup));
  EXPECT_EQ(keys_of("OFF", kFile), 0U);
  EXPECT_TRUE(names_by_word("OFF user=1\nOFF user=alice", kFile, RuleKey::kUser));
  EXPECT_FALSE(names_by_word("OFF user=1 group=a", kFile, RuleKey::kUser));
}

TEST(ProcessRules, ActionsAreThoseOfTheDecidingRule) {
  const Ruling ruling =
      decided("OFF log=off report=/a\nVALIDATE gpus=0 log=all report=/b environment=may-widen");
  EXPECT_EQ(ruling.gpus, "0");
  EXPECT_EQ(ruling.log, 3);
  EXPECT_EQ(ruling.report, "/b");
  EXPECT_TRUE(ruling.may_widen);
  EXPECT_EQ(decided("OFF log=off\nVALIDATE").log, -1);
}

TEST(ProcessRules, GlobTakesAtMostTheProductOfBothLengths) {
  const auto many = [](size_t count, const std::string& part) {
    std::string all;
    for (size_t i = 0; i < count; ++i) all += part;
    return all;
  };
  const struct {
    std::string pattern;
    std::string text;
    bool matches;
  } cases[] = {
      {many(100, "*a") + "b", many(10000, "a"), false},
      {many(100, "*a"), many(10000, "a"), true},
      {"*" + many(500, "[") + "b", many(1000, "["), false},
      {"*" + many(500, "["), many(1000, "["), true},
      {"*" + many(500, "[!"), many(1000, "[!"), true},
      {"*" + many(200, "[!]") + "[", many(1000, "["), false},
      {"*" + many(500, "[") + "]", many(1000, "["), true},
      {many(200, "*[]") + "b", many(1000, "["), false},
  };
  for (const auto& one : cases) {
    size_t steps = 0;
    EXPECT_EQ(matches_glob(one.pattern, one.text, &steps), one.matches) << one.pattern;
    EXPECT_LE(steps, one.pattern.size() * one.text.size()) << one.pattern;
    EXPECT_GE(steps, one.text.size()) << one.pattern;
  }
}

}  // namespace
}  // namespace cudaguard

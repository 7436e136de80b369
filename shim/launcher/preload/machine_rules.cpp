// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/preload/machine_rules.h"

#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "policy/decision.h"
#include "shim/guard/rules/rule_files.h"
#include "shim/guard/text/message.h"
#include "shim/guard/text/record.h"
#include "shim/launcher/message.h"
#include "shim/launcher/preload/rule_warnings.h"

namespace cudaguard::launcher {

namespace {

using Why = RuleMistake::Why;

using OpenFile = std::unique_ptr<FILE, int (*)(FILE*)>;

/// Reads at most `most` bytes of a file or a pipe. Returns 0, or an errno value.
int read_text(const std::string& path, size_t most, std::string& text) {
  const OpenFile file(fopen(path.c_str(), "re"), &fclose);
  if (file == nullptr) return errno;
  text.resize(most);
  text.resize(fread(text.data(), 1, most, file.get()));
  return ferror(file.get()) != 0 ? errno : 0;
}

RuleFact fact_of(const std::optional<std::string>& text, size_t most) {
  return text ? RuleFact{head(*text, most), true, text->size() > most} : RuleFact{};
}

/// Calls `take` for each entry until it returns false. `read` is fgetpwent or fgetgrent.
template <typename Entry>
void for_each_entry(const char* path, Entry* (*read)(FILE*), const auto& take) {
  const OpenFile file(fopen(path, "re"), &fclose);
  if (file == nullptr) return;
  for (Entry* entry = read(file.get()); entry != nullptr && take(*entry);) entry = read(file.get());
}

/// The number that the text writes.
std::optional<uint32_t> number_in(const std::string& text) {
  if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos) return {};
  errno = 0;
  const unsigned long number = strtoul(text.c_str(), nullptr, 10);
  if (errno != 0 || number >= UINT32_MAX) return {};
  return static_cast<uint32_t>(number);
}

[[noreturn]] void refuse_name(const char* option, const std::string& name, const char* file) {
  const std::string what = std::string(option) + " " + in_quotes(name);
  if (is_impossible_number(name)) {
    throw Refusal(kRefused,
                  what + " is not accepted (accepted: a name, or a number from 0 to 4294967294)");
  }
  throw Refusal(kRefused, what + " is not in " + file + "; write the number");
}

std::string sentence_about(const std::string& place, const RuleMistake& mistake) {
  return text_of([&](Text& out) { write_rule_mistake(out, {place, mistake}); });
}

void for_each_rule(const std::string& text, const auto& take) {
  ProcessRule rule;
  for (RuleText rest = {text, RuleSource::kFile}; take_rule(rest, rule);) take(rule);
}

}  // namespace

std::string beginning_of(const char* path) {
  std::string text;
  return read_text(path, kMostNames + 1, text) == 0 ? text : "";
}

RuleFact fact_of_names(const std::string& text) {
  return {head(text, kMostNames), !text.empty(), text.size() > kMostNames};
}

MachineRules::MachineRules() {
  const int fd = RuleFiles::open();
  if (fd == -ENOENT) return;
  const auto texts = std::make_unique<RuleTexts>();
  const auto entries = std::make_unique<RuleEntries>();
  RuleFiles files(*texts, *entries, fd);
  while (files.next()) files_.push_back({std::string(files.path()), std::string(files.text())});
  why_ = files.why_unusable();
  if (why_ != nullptr) unusable_ = files.path();
  for (const File& file : files_) {
    note_unreadable(file.path, S_IROTH);
    if (&file == files_.data()) note_unreadable(kRuleDirectory, S_IROTH | S_IXOTH);
  }
}

/// Notes a path of which not every user has these rights. Root owns it.
void MachineRules::note_unreadable(const std::string& path, mode_t rights) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) return;
  const mode_t both = status.st_mode & (status.st_mode >> 3);
  if ((both & rights) != rights) closed_.push_back({path, rights, status.st_mode, status.st_gid});
}

/// Returns the first path that this process cannot read, or null, also if its user is not known.
const MachineRules::Closed* MachineRules::closed_to(const AskedProcess& process) const {
  if (process.user.value_or(0) == 0) return nullptr;
  for (const Closed& one : closed_) {
    const mode_t of_group = one.mode >> 3;
    const bool in_group = process.groups && std::ranges::count(*process.groups, one.group) != 0;
    const mode_t has = !process.groups ? one.mode & of_group : in_group ? of_group : one.mode;
    if ((has & one.rights) != one.rights) return &one;
  }
  return nullptr;
}

MachineRules::MachineRules(const std::string& path) {
  std::string text;
  if (const int error = read_text(path, kMostRuleBytes + 1, text); error != 0) {
    throw Refusal(kRefused, in_quotes(path) + " cannot be read: " + strerror(error));
  }
  if (text.size() <= kMostRuleBytes) {
    files_.push_back({path, std::move(text)});
  } else {
    unusable_ = path;
    why_ = kTooLong;
  }
}

bool MachineRules::name_report() const {
  return std::ranges::any_of(files_, [](const File& file) {
    return (keys_of(file.text, RuleSource::kFile) & bit_of(RuleKey::kReport)) != 0;
  });
}

/// Calls `take` for each rule with its place: "/etc/cudaguard.conf:7".
void MachineRules::for_each(
    const std::function<void(const std::string&, const ProcessRule&)>& take) const {
  for (const File& file : files_) {
    for_each_rule(file.text, [&](const ProcessRule& rule) {
      take(file.path + ":" + std::to_string(rule.line), rule);
    });
  }
}

std::string MachineRules::for_others() const {
  std::string policy(name_of(Policy::kForceCpu));
  std::string why = why_ == nullptr ? "because no rule matches every process"
                                    : "because " + printable(unusable_) + " is not used";
  if (why_ == nullptr) {
    for_each([&](const std::string& place, const ProcessRule& rule) {
      const bool wrong = rule.mistake.why != Why::kNone;
      if (!wrong && !matches_all(rule)) return;
      policy = name_of(wrong ? Policy::kForceCpu : rule.policy);
      why = "by " + printable(place);
    });
  }
  return "A process that no rule names gets " + policy + ", " + why + ".";
}

std::string MachineRules::no_default() const {
  if (why_ != nullptr || files_.empty()) return {};
  bool some = false;
  bool all = false;
  for_each([&](const std::string& /*place*/, const ProcessRule& rule) {
    some = true;
    all = all || matches_all(rule);
  });
  if (all) return {};
  return printable(files_.front().path) +
         (some ? ": no rule matches every process, so FORCE_CPU applies to those that no rule "
                 "names; write OFF or FORCE_CPU into the first line"
               : ": no rule; FORCE_CPU applies to every process");
}

std::vector<std::string> MachineRules::mistakes() const {
  std::vector<std::string> found;
  std::string last;  // the last place whose rule matches every process
  for_each([&](const std::string& place, const ProcessRule& rule) {
    if (matches_all(rule)) last = place;
  });
  bool decides = last.empty();
  for_each([&](const std::string& place, const ProcessRule& rule) {
    decides = decides || place == last;
    if (rule.mistake.why != Why::kNone) {
      found.push_back(sentence_about(place, rule.mistake));
      return;
    }
    std::vector<std::string> warnings = warnings_about(rule);
    if (!decides) {
      warnings.push_back("never decides, because " + printable(last) + " matches every process");
    }
    for (const std::string& text : warnings) found.push_back(printable(place) + ": " + text);
  });
  if (const std::string text = no_default(); !text.empty()) found.push_back(text);
  if (why_ != nullptr) {
    found.push_back(text_of([&](Text& out) { write_unused_file(out, {unusable_, why_}); }));
  }
  for (const Closed& one : closed_) {
    found.push_back(printable(one.path) +
                    " is not used for users who cannot read it; FORCE_CPU applies to them");
  }
  return found;
}

std::vector<std::string> MachineRules::summary() const {
  std::vector<std::string> lines;
  for (const File& file : files_) {
    size_t rules = 0;
    for_each_rule(file.text, [&](const ProcessRule& /*rule*/) { ++rules; });
    lines.push_back(printable(file.path) + ": " + counted(rules, "rule"));
  }
  return lines;
}

/// True if a rule with OFF may be the last one that matches, and the variables do not narrow it.
bool MachineRules::may_be_off(const RuleFacts& facts, const Environment& environment) const {
  MachineRuling off;
  off.ruling.policy = Policy::kOff;
  if (decide(environment, {.facts = facts, .machine = &off}).calls != Policy::kOff) return false;
  bool may = false;
  for (const File& file : files_) {
    for_each_rule(file.text, [&](const ProcessRule& rule) {
      const Ruling alone = decide_by_rules(rule.text, RuleSource::kFile, facts, {});
      if (!alone.decided) return;
      const bool says_off = rule.policy == Policy::kOff && alone.mistake.why == Why::kNone;
      may = says_off || (may && alone.unsure);
    });
  }
  return may;
}

RuleAnswer MachineRules::answer(const AskedProcess& process, const Environment& environment) const {
  const std::string users = beginning_of(kUserFile);
  const std::string groups = beginning_of(kGroupFile);
  RuleFacts facts;
  facts.program = fact_of(process.program, PATH_MAX);
  facts.args = fact_of(process.args, kMostArgs);
  facts.cgroup = fact_of(process.cgroups, kMostCgroups);
  facts.user_file = fact_of_names(users);
  facts.group_file = fact_of_names(groups);
  facts.knows_user = process.user.has_value();
  facts.user = process.user.value_or(0);
  facts.knows_groups = process.groups.has_value();
  if (process.groups) facts.groups = *process.groups;

  MachineRuling machine;
  std::string place(PATH_MAX + 32, '\0');
  uint32_t asked = 0;
  for (const File& file : files_) {
    add_rules_of_file(machine, place, file.path, file.text, facts);
    asked |= keys_of(file.text, RuleSource::kFile);
  }
  const Closed* closed = closed_to(process);
  machine.unusable = closed != nullptr ? kNotRead : why_;
  if (machine.unusable != nullptr) {
    machine.file = machine.place = closed != nullptr ? closed->path : unusable_;
  }
  const Decision decision =
      decide(environment, {.facts = facts, .machine = exist() ? &machine : nullptr});
  const Ruling& ruling = machine.ruling;

  RuleAnswer answer;
  answer.policy = name_of(decision.calls);
  answer.place = machine.place;
  answer.by = decision.decided_by.empty()           ? row_of(Variable::kPolicy).name
              : decision.decided_by == answer.place ? answer.place
                                                    : row_of(Variable::kProcessRules).name;
  answer.gpus = decision.allow_list.text;
  answer.report = decision.report;
  answer.log = word_at(row_of(Variable::kLog).accepted, static_cast<size_t>(decision.log));
  if (machine.unusable != nullptr) return answer;
  answer.rule = ruling.rule;
  answer.may_widen = ruling.may_widen;
  if (!ruling.unsure) return answer;
  answer.may_be_off = decision.calls != Policy::kOff && may_be_off(facts, environment);
  const std::pair<RuleKey, bool> known[] = {{RuleKey::kProgram, facts.program.known},
                                            {RuleKey::kArgs, facts.args.known},
                                            {RuleKey::kUser, facts.knows_user},
                                            {RuleKey::kGroup, facts.knows_groups},
                                            {RuleKey::kCgroup, facts.cgroup.known}};
  std::vector<std::string> missing;
  for (const auto& [key, is_known] : known) {
    if (is_known || (asked & bit_of(key)) == 0) continue;
    missing.push_back(std::string(kRuleKeys[static_cast<size_t>(key)]) + "=");
  }
  const UnknownName& unknown = ruling.unknown;
  answer.unsure = !missing.empty() ? "rules ask for " + joined(missing, ", ")
                  : unknown.name.empty()
                      ? "a condition may be true"
                      : std::string(kRuleKeys[static_cast<size_t>(unknown.key)]) + "=" +
                            in_quotes(std::string(unknown.name)) + " is not in " +
                            file_of_names(unknown.key);
  return answer;
}

void add_user(const std::string& name, AskedProcess& process) {
  const std::optional<uint32_t> number = number_in(name);
  std::string found;
  for_each_entry<passwd>(kUserFile, fgetpwent, [&](const passwd& entry) {
    if (number ? entry.pw_uid != *number : name != entry.pw_name) return true;
    found = entry.pw_name;
    process.user = entry.pw_uid;
    process.groups = {entry.pw_gid};
    return false;
  });
  if (found.empty()) {
    if (!number) refuse_name("--user", name, kUserFile);
    process.user = *number;  // its groups are not known
    return;
  }
  for_each_entry<group>(kGroupFile, fgetgrent, [&](const group& entry) {
    for (char** member = entry.gr_mem; *member != nullptr; ++member) {
      if (found == *member) process.groups->push_back(entry.gr_gid);
    }
    return true;
  });
}

void add_group(const std::string& name, AskedProcess& process) {
  std::optional<uint32_t> number = number_in(name);
  for_each_entry<group>(kGroupFile, fgetgrent, [&](const group& entry) {
    if (!number && name == entry.gr_name) number = entry.gr_gid;
    return !number;
  });
  if (!number) refuse_name("--group", name, kGroupFile);
  if (!process.groups) process.groups.emplace();
  process.groups->push_back(*number);
}

std::string executable_of(const Program& program) {
  const std::string& path =
      program.executables.empty() ? program.path : program.executables.back().path;
  char resolved[PATH_MAX];
  return realpath(path.c_str(), resolved) == nullptr ? path : resolved;
}

AskedProcess started_here(const Program& program) {
  AskedProcess process;
  process.program = executable_of(program);
  process.user = getuid();
  process.groups.emplace(1, getgid());
  std::vector<gid_t> more(static_cast<size_t>(std::max(getgroups(0, nullptr), 0)));
  more.resize(
      static_cast<size_t>(std::max(getgroups(static_cast<int>(more.size()), more.data()), 0)));
  process.groups->insert(process.groups->end(), more.begin(), more.end());
  if (const std::string lines = beginning_of("/proc/self/cgroup"); !lines.empty()) {
    process.cgroups = lines;
  }
  return process;
}

}  // namespace cudaguard::launcher

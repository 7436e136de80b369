// SPDX-License-Identifier: Apache-2.0
#include "policy/decision.h"

#include "policy/text.h"

namespace cudaguard {

namespace {

constexpr uint8_t number(Policy policy) { return static_cast<uint8_t>(policy); }
constexpr uint8_t number(Children children) { return static_cast<uint8_t>(children); }
constexpr uint8_t number(Log log) { return static_cast<uint8_t>(log); }
constexpr uint32_t kNoProcess = UINT32_MAX;  // an id that no process has
constexpr char kNoFirstProcess[] =
    "needs CUDAGUARD_ROOT: sh -c 'CUDAGUARD_ROOT=$$ exec APP'; FORCE_CPU applies";
constexpr char kNoEffect[] =
    "has no effect under FORCE_CPU; to use the list: CUDAGUARD_POLICY=VALIDATE";

constexpr char kNotAccepted[] = "CUDAGUARD_RULES is not accepted";
constexpr char kSplit[] = "two lists of GPUs, of which neither has the other's";

/// What a privileged process is decided by.
constexpr Environment kNoVariables;

bool is_given(const char* value) { return value != nullptr && *value != '\0'; }

/// What applies after the steps so far, and why. A Decision has it after the last one.
struct Choice {
  Policy policy = Policy::kForceCpu;
  GivenList list = {};
  std::string_view because = {};
  std::string_view rule = {};
  std::string_view decided_by = {};
  bool may_lift = false;
  int log = -1;  ///< of a rule, as in Ruling
  std::string_view report = {};
};

/// A narrower policy for a reason that is no rule.
[[gnu::noinline]] void narrow(Choice& choice, Policy policy, std::string_view because) {
  choice.policy = policy;
  choice.because = because;
  choice.decided_by = {};
}

void narrow_to_cpu(Choice& choice, std::string_view because) {
  narrow(choice, Policy::kForceCpu, because);
}

/// Sets a rule's allow-list, which has no mistake. It may be the one that was given.
void set_list(Choice& choice, std::string_view list, std::string_view place = {}) {
  if (list != choice.list.text) choice.list = {list, ListBy::kRule, place};
}

Complaint& complain(Mistakes& mistakes, Variable variable, std::string_view value) {
  const VariableRow& row = row_of(variable);
  Complaint& complaint = mistakes.complaints[mistakes.complaint_count++];
  complaint = {row.name, value, row.accepted, row.instead};
  return complaint;
}

/// Returns the place of a variable's value among the accepted words. Returns `unset` if the
/// variable is unset, or empty as in most shell scripts, and `bad` if the value is no such word.
uint8_t word_of(const Environment& environment, Variable variable, uint8_t unset, uint8_t bad,
                Mistakes& mistakes) {
  const VariableRow& row = row_of(variable);
  const char* text = environment.*row.place;
  if (!is_given(text)) return unset;
  const size_t place = place_of_word(row.accepted, text);
  if (place != std::string_view::npos) return static_cast<uint8_t>(place);
  complain(mistakes, variable, text);
  return bad;
}

/// Returns the process id that `text` writes in decimal digits, or 0 if it is none.
uint32_t process_id(std::string_view text) {
  uint32_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9' || value > 400'000'000) return 0;
    value = value * 10 + static_cast<uint32_t>(c - '0');
  }
  return value;
}

bool has_preset(const Environment& environment, const char* mark) {
  return environment.presets != nullptr &&
         place_of_entry(environment.presets, mark) != std::string_view::npos;
}

/// True if `run --gpus` gave the list. False if a program inside the run has set another one.
bool is_given_by_option(const Environment& environment) {
  if (environment.presets == nullptr || environment.visible_devices == nullptr) return false;
  const std::string_view presets = environment.presets;
  const std::string_view list = environment.visible_devices;
  if (!presets.ends_with(list)) return false;
  const std::string_view before = head(presets, presets.size() - list.size());
  return before == kGpusMark ||
         (before.ends_with(kGpusMark) && before.data()[before.size() - sizeof kGpusMark] == ',');
}

/// The list of the variables, under the policy that they name.
void by_list(const Environment& environment, Choice& choice, Mistakes& mistakes) {
  const std::string_view text = environment.visible_devices;
  if (choice.policy == Policy::kOff) return;  // the user has named OFF
  if (choice.policy == Policy::kForceCpu) {
    if (mistakes.complaint_count == 0 && !text.empty()) {
      complain(mistakes, Variable::kVisibleDevices, text).instead = kNoEffect;
    }
    return;
  }
  AllowList list;
  if (text.size() > kMaxVisibleDevices) {
    list.error = {ListError::Why::kTooLong, 0, {}};
  } else {
    list = parse_allow_list(text);
  }
  mistakes.list = list.error;
  if (list.none) {
    return narrow_to_cpu(choice, choice.list.by == ListBy::kOption
                                     ? "--gpus allows no GPU"
                                     : "CUDAGUARD_VISIBLE_DEVICES allows no GPU");
  }
  if (list.error.why != ListError::Why::kNone) {
    mistakes.bad_list = head(text, kMaxVisibleDevices);
    return narrow_to_cpu(choice, "CUDAGUARD_VISIBLE_DEVICES is not accepted");
  }
  choice.list.text = text;
}

/// The first step: CUDAGUARD_POLICY and CUDAGUARD_VISIBLE_DEVICES.
Choice by_variables(const Environment& environment, Mistakes& mistakes) {
  const bool has_list = environment.visible_devices != nullptr;
  const Policy unset =
      has_list && !is_given(environment.policy) ? Policy::kValidate : Policy::kForceCpu;
  Choice choice;
  if (is_given_by_option(environment)) choice.list.by = ListBy::kOption;
  choice.policy = static_cast<Policy>(
      word_of(environment, Variable::kPolicy, number(unset), number(Policy::kForceCpu), mistakes));
  if (has_list) by_list(environment, choice, mistakes);
  return choice;
}

/// Lets the rules of the environment choose. A mistake elsewhere has led to FORCE_CPU, which no
/// rule lifts.
void by_rules(const Environment& environment, const RuleInputs& rules, Choice& choice,
              Mistakes& mistakes) {
  if (!is_given(environment.rules)) return;
  const std::string_view text = environment.rules;
  if (text.size() > kMaxRules) {
    complain(mistakes, Variable::kProcessRules, text);
    return narrow_to_cpu(choice, kNotAccepted);
  }
  if (mistakes.complaint_count != 0 || !choice.because.empty()) return;
  const Ruling ruling = rules.known != nullptr ? *rules.known : rule_for(environment, rules.facts);
  if (ruling.mistake.why != RuleMistake::Why::kNone) {
    mistakes.rule = ruling.mistake;
    mistakes.rule_place = row_of(Variable::kProcessRules).name;
    return narrow_to_cpu(choice, kNotAccepted);
  }
  choice.rule = choice.decided_by = ruling.rule;
  choice.policy = ruling.policy;
  if (ruling.policy == Policy::kForceCpu) {
    mistakes.unknown_name = ruling.unknown;
    if (ruling.split) return narrow_to_cpu(choice, kSplit);
    if (ruling.decided) choice.because = kIsRuled;
  } else {
    if (ruling.policy == Policy::kOff || !ruling.gpus.empty()) set_list(choice, ruling.gpus);
    if (refuses_contexts(ruling.policy) && ruling.decided) choice.because = kIsRuled;
  }
  choice.log = ruling.log;
  choice.report = ruling.report;
}

/// CUDAGUARD_CHILDREN and CUDAGUARD_ROOT.
struct ChildrenRule {
  Children children = Children::kUnset;
  uint32_t first_process = 0;
  std::string_view because;  ///< why FORCE_CPU applies to all processes, if it does
};

/// Reads CUDAGUARD_ROOT: "41" or, as the launcher writes it, "41:pid:[4026531836]".
uint32_t first_process_of(const Environment& environment, Mistakes& mistakes) {
  if (!is_given(environment.first_process)) return 0;
  const std::string_view text = environment.first_process;
  const size_t colon = text.find(':');
  const uint32_t first_process = process_id(head(text, colon));
  const bool whole = colon == std::string_view::npos ||
                     namespace_of_first_process(environment).starts_with("pid:[");
  if (first_process != 0 && whole) return first_process;
  complain(mistakes, Variable::kFirstProcess, text);
  return kNoProcess;
}

ChildrenRule children_rule(const Environment& environment, Policy policy, Mistakes& mistakes) {
  constexpr uint8_t kBad = number(Children::kUnset) + 1;
  const uint8_t word =
      word_of(environment, Variable::kChildren, number(Children::kUnset), kBad, mistakes);
  ChildrenRule rule;
  rule.children = word == kBad ? Children::kForceCpu : static_cast<Children>(word);
  // It is not known which processes the user wants to keep off CUDA.
  if (word == kBad && policy != Policy::kOff) rule.because = "CUDAGUARD_CHILDREN is not accepted";
  if (rule.children == Children::kUnset) return rule;  // CUDAGUARD_ROOT alone has no effect
  rule.first_process = first_process_of(environment, mistakes);
  // Without a first process, nothing shows which process may keep the GPU.
  if (rule.first_process == 0 && rule.because.empty() && allows_cuda(policy)) {
    Complaint& complaint = complain(mistakes, Variable::kChildren, {});
    complaint.accepted = {};
    complaint.instead = kNoFirstProcess;
    rule.because = "no CUDAGUARD_ROOT";
  }
  return rule;
}

/// True if CUDAGUARD_CHILDREN narrows this process to FORCE_CPU.
bool narrows(const ChildrenRule& rule, const Environment& environment,
             const ProcessIdentity& process) {
  if (rule.children == Children::kUnset || process.pid == 0) return false;
  const std::string_view wanted = namespace_of_first_process(environment);
  const bool same = !process.forked && process.pid == rule.first_process;
  const bool near = wanted.empty() || wanted == process.pid_namespace;
  if (!favours_descendants(rule.children)) return !same || !near;
  // Without a first process, each one may be that.
  const bool has_first_process = rule.first_process != 0 && rule.first_process != kNoProcess;
  return !has_first_process || (same && (near || process.pid_namespace.empty()));
}

/// Narrows a process for which narrows() is true, and which may use CUDA.
void narrow_one(Children children, Choice& choice) {
  constexpr const char* kBecause[] = {kIsChild, kIsParent, kIsQueryChild, kIsQueryParent};
  const bool queries = children == Children::kNoContext || children == Children::kOnlyContexts;
  if (queries && refuses_contexts(choice.policy)) return;
  narrow(choice, queries ? Policy::kNoContext : Policy::kForceCpu,
         kBecause[static_cast<size_t>(children)]);
}

std::string_view report_of(const Environment& environment, Mistakes& mistakes) {
  if (environment.report == nullptr) return {};
  const std::string_view path = environment.report;
  if (path.size() <= kMaxReportPath) return path;
  complain(mistakes, Variable::kReport, path);
  return {};
}

bool names_policy(const Environment& environment) {
  return is_given(environment.policy) || environment.visible_devices != nullptr ||
         is_given(environment.rules);
}

/// Returns what the environment asks for, as a ruling. If it names no policy, it restricts only the
/// children.
Ruling asked_by(const Environment& environment, const Choice& choice) {
  Ruling asked;
  const bool named = names_policy(environment) || !choice.because.empty();
  asked.policy = named ? choice.policy : Policy::kValidate;
  if (allows_cuda(asked.policy)) asked.gpus = choice.list.text;
  return asked;
}

/// The environment narrows what the file allows. It widens that only if the file says so.
void by_machine(const MachineRuling& machine, const Environment& environment, bool privileged,
                Choice& choice, Mistakes& mistakes) {
  const Ruling& said = machine.ruling;
  if (machine.unusable != nullptr) {
    mistakes.unused_file = machine.file;
    mistakes.why_unused = machine.unusable;
    return narrow_to_cpu(choice, machine.place);
  }
  if (said.log >= 0) choice.log = said.log;
  if (!said.report.empty()) choice.report = said.report;
  if (said.mistake.why != RuleMistake::Why::kNone) {
    mistakes.rule = said.mistake;
    mistakes.rule_place = machine.place;
  }
  if (said.may_widen && names_policy(environment)) return;
  const bool asks = names_policy(environment) || is_given(environment.children);
  const Ruling result = asks ? narrower(said, asked_by(environment, choice)) : said;
  const std::string_view line = said.rule.empty() ? std::string_view{} : machine.place;
  if (said.policy == Policy::kForceCpu) {
    mistakes.unknown_name = said.unknown;
    narrow_to_cpu(choice, machine.place);
    choice.may_lift = said.may_widen && !privileged;
    choice.decided_by = line;
    return;
  }
  if (result.split) return narrow_to_cpu(choice, kSplit);
  // The environment's ruling has no rule.
  if (!result.rule.empty()) choice.decided_by = line;
  choice.policy = result.policy;
  if (refuses_contexts(result.policy) && !result.rule.empty()) {
    choice.because = machine.place;
    choice.may_lift = said.may_widen && !privileged;
  }
  if (result.policy != Policy::kForceCpu) set_list(choice, result.gpus, machine.place);
}

}  // namespace

void add_rules_of_file(MachineRuling& machine, std::span<char> place, std::string_view path,
                       std::string_view text, const RuleFacts& facts) {
  machine.ruling = decide_by_rules(text, RuleSource::kFile, facts, machine.ruling);
  const std::string_view rule = machine.ruling.rule;
  const bool in_this_file =
      !rule.empty() && rule.data() >= text.data() && rule.data() < text.data() + text.size();
  if (!in_this_file && !machine.place.empty()) return;
  Text out(place.data(), place.size());
  out.put(in_this_file ? "" : "no rule of ").put(path);
  if (in_this_file) out.put(":").put_decimal(machine.ruling.line);
  machine.place = out.view();
}

Ruling rule_for(const Environment& environment, const RuleFacts& facts) {
  Mistakes mistakes;
  const Choice choice = by_variables(environment, mistakes);
  Ruling otherwise;
  otherwise.policy = choice.policy;
  otherwise.gpus = choice.list.text;
  return decide_by_rules(environment.rules, RuleSource::kVariable, facts, otherwise);
}

bool names_children(const Environment& environment) { return is_given(environment.children); }

std::string_view namespace_of_first_process(const Environment& environment) {
  if (environment.first_process == nullptr) return {};
  const std::string_view text = environment.first_process;
  const size_t colon = text.find(':');
  return colon == std::string_view::npos ? std::string_view{} : tail(text, colon + 1);
}

Decision decide(const Environment& environment, const RuleInputs& rules,
                const ProcessIdentity& process) {
  const Environment& given = process.privileged ? kNoVariables : environment;
  Decision made;
  Mistakes& mistakes = made.mistakes;
  Choice choice = by_variables(given, mistakes);
  by_rules(given, rules, choice, mistakes);
  const ChildrenRule family = children_rule(given, choice.policy, mistakes);
  if (!family.because.empty()) narrow_to_cpu(choice, family.because);
  constexpr uint8_t kNoWord = UINT8_MAX;
  const uint8_t log = word_of(given, Variable::kLog, kNoWord, number(Log::kDeny), mistakes);
  if (choice.report.empty()) choice.report = report_of(given, mistakes);
  if (rules.machine != nullptr) {
    by_machine(*rules.machine, given, process.privileged, choice, mistakes);
  }
  made.loads = choice.policy;
  if (allows_cuda(choice.policy) && narrows(family, given, process)) {
    narrow_one(family.children, choice);
    if (family.children != Children::kOnly) made.loads = choice.policy;
  }
  made.calls = choice.policy;
  made.log = log != kNoWord    ? static_cast<Log>(log)
             : choice.log >= 0 ? static_cast<Log>(choice.log)
                               : Log::kDeny;
  made.children = family.children;
  made.first_process = family.first_process;
  made.allow_list = choice.list;
  made.report = choice.report;
  made.because = choice.because;
  made.may_lift = choice.may_lift;
  made.rule = choice.rule;
  made.decided_by = choice.decided_by;
  made.privileged = process.privileged;
  made.in_run = given.presets != nullptr;
  made.fenced = made.in_run && *given.presets == *kFenceMark;
  made.children_by_option = has_preset(given, kChildrenMark);
  made.unhealthy = has_preset(given, kUnhealthyMark);
  return made;
}

bool wants_line(Log log, bool first) { return log == Log::kAll || (log == Log::kDeny && first); }

}  // namespace cudaguard

// SPDX-License-Identifier: Apache-2.0
#include "policy/config.h"

#include "policy/text.h"

namespace cudaguard {

namespace {

constexpr uint8_t number(Policy policy) { return static_cast<uint8_t>(policy); }
constexpr uint8_t number(Children children) { return static_cast<uint8_t>(children); }
constexpr uint8_t number(Log log) { return static_cast<uint8_t>(log); }
constexpr uint32_t kNoProcess = UINT32_MAX;  // an id that no process has
constexpr char kNoRoot[] =
    "needs CUDAGUARD_ROOT: sh -c 'CUDAGUARD_ROOT=$$ exec APP'; FORCE_CPU applies";

constexpr char kNotAccepted[] = "CUDAGUARD_RULES is not accepted";
constexpr char kSplit[] = "two lists of GPUs, of which neither has the other's";

bool is_given(const char* value) { return value != nullptr && *value != '\0'; }

Complaint& complain(Config& config, Variable variable, std::string_view value) {
  const VariableRow& row = row_of(variable);
  Complaint& complaint = config.complaints[config.complaint_count++];
  complaint = {row.name, value, row.accepted, row.instead};
  return complaint;
}

/// Returns the place of a variable's value among the accepted words. Returns `unset` if the
/// variable is unset, or empty as in most shell scripts, and `bad` if the value is no such word.
uint8_t parse_word(Config& config, const Environment& environment, Variable variable, uint8_t unset,
                   uint8_t bad) {
  const VariableRow& row = row_of(variable);
  const char* text = environment.*row.place;
  if (text == nullptr || *text == '\0') return unset;
  const size_t place = place_of_word(row.accepted, text);
  if (place != std::string_view::npos) return static_cast<uint8_t>(place);
  complain(config, variable, text);
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

/// Sets a rule's allow-list, which has no mistake. It may be the one that was given.
void set_list(Config& config, std::string_view list, std::string_view place = {}) {
  if (list == config.allow_list.text) return;
  config.allow_list = {list, ListBy::kRule, place};
}

void parse_list(const Environment& environment, Config& config) {
  if (environment.visible_devices == nullptr) return;
  const std::string_view text = environment.visible_devices;
  const bool named = environment.policy != nullptr && *environment.policy != '\0';
  if (!named) config.policy = Policy::kValidate;
  if (config.policy == Policy::kOff) return;  // the user has named OFF
  if (config.policy == Policy::kForceCpu) {
    if (config.complaint_count == 0 && !text.empty()) {
      complain(config, Variable::kVisibleDevices, text);
    }
    return;
  }
  if (text.size() > kMaxVisibleDevices) {
    config.list_error = {ListError::Why::kTooLong, 0, {}};
  } else {
    const AllowList list = parse_allow_list(text);
    config.list_error = list.error;
    if (list.none) {
      return narrow_to_cpu(config, config.allow_list.by == ListBy::kOption
                                       ? "--gpus allows no GPU"
                                       : "CUDAGUARD_VISIBLE_DEVICES allows no GPU");
    }
  }
  if (config.list_error.why != ListError::Why::kNone) {
    config.bad_list = head(text, kMaxVisibleDevices);
    return narrow_to_cpu(config, "CUDAGUARD_VISIBLE_DEVICES is not accepted");
  }
  config.allow_list.text = text;
}

void parse_children(const Environment& environment, Config& config) {
  constexpr uint8_t kBad = number(Children::kAsRoot) + 1;
  const uint8_t word =
      parse_word(config, environment, Variable::kChildren, number(Children::kAsRoot), kBad);
  config.children = word == kBad ? Children::kForceCpu : static_cast<Children>(word);
  config.forked_child = config.children != Children::kAsRoot && environment.forked;
  // It is not known which processes the user wants to keep off CUDA.
  if (word == kBad && config.policy != Policy::kOff) {
    narrow_to_cpu(config, "CUDAGUARD_CHILDREN is not accepted");
  }
}

/// Reads CUDAGUARD_ROOT: "41" or, as the launcher writes it, "41:pid:[4026531836]". Without a root,
/// nothing shows which process may keep the GPU.
void parse_root(const Environment& environment, Config& config) {
  const char* given = environment.root;
  if (given != nullptr && *given != '\0') {
    const std::string_view text = given;
    const size_t colon = text.find(':');
    if (colon != std::string_view::npos) config.root_namespace = tail(text, colon + 1);
    config.root = process_id(head(text, colon));
    if (config.root != 0 &&
        (colon == std::string_view::npos || config.root_namespace.starts_with("pid:["))) {
      return;
    }
    complain(config, Variable::kRoot, text);
    config.root = kNoProcess;
  } else if (config.children != Children::kAsRoot && allows_cuda(config.policy)) {
    Complaint& complaint = complain(config, Variable::kChildren, {});
    complaint.accepted = {};
    complaint.instead = kNoRoot;
    narrow_to_cpu(config, "no CUDAGUARD_ROOT");
  }
}

/// Lets the rules of the environment choose the policy. A mistake elsewhere has led to FORCE_CPU,
/// which no rule lifts.
void apply_rules(const Environment& environment, const RuleFacts& facts, Config& config) {
  if (!is_given(environment.rules)) return;
  const std::string_view text = environment.rules;
  if (text.size() > kMaxRules) {
    complain(config, Variable::kProcessRules, text);
    return narrow_to_cpu(config, kNotAccepted);
  }
  if (config.complaint_count != 0 || !config.because.empty()) return;
  Ruling otherwise;
  otherwise.policy = config.policy;
  otherwise.gpus = config.allow_list.text;
  const Ruling ruling = decide_by_rules(text, RuleSource::kVariable, facts, otherwise);
  if (ruling.mistake.why != RuleMistake::Why::kNone) {
    config.rule_mistake = ruling.mistake;
    config.rule_place = row_of(Variable::kProcessRules).name;
    return narrow_to_cpu(config, kNotAccepted);
  }
  config.rule = config.decided_by = ruling.rule;
  config.policy = ruling.policy;
  if (ruling.policy == Policy::kForceCpu) {
    config.unknown_name = ruling.unknown;
    if (ruling.split) return narrow_to_cpu(config, kSplit);
    if (ruling.decided) config.because = kIsRuled;
  } else if (ruling.policy == Policy::kOff || !ruling.gpus.empty()) {
    set_list(config, ruling.gpus);
  }
  if (ruling.log >= 0) config.log = static_cast<Log>(ruling.log);
  if (!ruling.report.empty()) config.report = ruling.report;
}

void parse_environment(const Environment& environment, const RuleFacts& facts, Config& config) {
  config.in_run = environment.presets != nullptr;
  config.fenced = config.in_run && *environment.presets == *kFenceMark;
  if (is_given_by_option(environment)) config.allow_list.by = ListBy::kOption;
  config.children_by_option =
      config.in_run && place_of_entry(environment.presets, kChildrenMark) != std::string_view::npos;
  config.unhealthy = config.in_run &&
                     place_of_entry(environment.presets, kUnhealthyMark) != std::string_view::npos;
  config.policy = static_cast<Policy>(parse_word(config, environment, Variable::kPolicy,
                                                 number(config.policy), number(Policy::kForceCpu)));
  parse_list(environment, config);
  apply_rules(environment, facts, config);
  parse_children(environment, config);
  parse_root(environment, config);
  config.log = static_cast<Log>(
      parse_word(config, environment, Variable::kLog, number(config.log), number(Log::kDeny)));
  if (environment.report != nullptr && config.report.empty()) {
    const std::string_view path = environment.report;
    if (path.size() > kMaxReportPath) {
      complain(config, Variable::kReport, path);
    } else {
      config.report = path;
    }
  }
}

bool names_policy(const Environment& environment) {
  return is_given(environment.policy) || environment.visible_devices != nullptr ||
         is_given(environment.rules);
}

/// Returns what the environment asks for, as a ruling. If it names no policy, it restricts only the
/// children.
Ruling asked_by(const Environment& environment, const Config& config) {
  Ruling asked;
  const bool named = names_policy(environment) || !config.because.empty();
  asked.policy = named ? config.policy : Policy::kValidate;
  if (allows_cuda(asked.policy)) asked.gpus = config.allow_list.text;
  return asked;
}

/// The environment narrows what the file allows. It widens that only if the file says so.
void apply_machine(const MachineRuling& machine, const Environment& environment, Config& config) {
  const Ruling& said = machine.ruling;
  if (machine.unusable != nullptr) {
    config.unused_file = machine.file;
    config.why_unused = machine.unusable;
    return narrow_to_cpu(config, machine.place);
  }
  if (said.log >= 0 && (config.privileged || !is_given(environment.log))) {
    config.log = static_cast<Log>(said.log);
  }
  if (!said.report.empty()) config.report = said.report;
  if (said.mistake.why != RuleMistake::Why::kNone) {
    config.rule_mistake = said.mistake;
    config.rule_place = machine.place;
  }
  if (said.may_widen && !config.privileged && names_policy(environment)) return;
  const bool asks =
      !config.privileged && (names_policy(environment) || is_given(environment.children));
  const Ruling result = asks ? narrower(said, asked_by(environment, config)) : said;
  const std::string_view line = said.rule.empty() ? std::string_view{} : machine.place;
  if (said.policy == Policy::kForceCpu) {
    config.unknown_name = said.unknown;
    narrow_to_cpu(config, machine.place);
    config.may_lift = said.may_widen && !config.privileged;
    config.decided_by = line;
    return;
  }
  if (result.split) return narrow_to_cpu(config, kSplit);
  // The environment's ruling has no rule.
  if (!result.rule.empty()) config.decided_by = line;
  config.policy = result.policy;
  if (result.policy != Policy::kForceCpu) set_list(config, result.gpus, machine.place);
}

}  // namespace

void add_rules_of_file(MachineRuling& machine, std::span<char> place, std::string_view path,
                       std::string_view text, const RuleFacts& facts) {
  machine.ruling = decide_by_rules(text, RuleSource::kFile, facts, machine.ruling);
  const std::string_view rule = machine.ruling.rule;
  const bool here =
      !rule.empty() && rule.data() >= text.data() && rule.data() < text.data() + text.size();
  if (!here && !machine.place.empty()) return;
  Text out(place.data(), place.size());
  out.put(here ? "" : "no rule of ").put(path);
  if (here) out.put(":").put_decimal(machine.ruling.line);
  machine.place = out.view();
}

Config parse_config(const Environment& environment, const RuleFacts& facts,
                    const MachineRuling* machine) {
  Config config;
  config.log = Log::kDeny;
  config.children = Children::kAsRoot;
  config.privileged = environment.privileged;
  if (!environment.privileged) parse_environment(environment, facts, config);
  if (machine != nullptr) apply_machine(*machine, environment, config);
  config.loads = config.policy;
  return config;
}

bool is_narrowed(const Config& config, const Place& place) {
  if (config.children == Children::kAsRoot || !allows_cuda(config.policy)) return false;
  const bool same = !config.forked_child && place.pid == config.root;
  const bool here = config.root_namespace.empty() || config.root_namespace == place.pid_namespace;
  if (config.children == Children::kForceCpu) return !same || !here;
  // Without a root, each process may be the one.
  const bool has_root = config.root != 0 && config.root != kNoProcess;
  return !has_root || (same && (here || place.pid_namespace.empty()));
}

void apply_children_rule(Config& config, const Place& place) {
  config.loads = config.policy;
  if (!is_narrowed(config, place)) return;
  const bool parent = config.children == Children::kOnly;
  narrow_to_cpu(config, parent ? kIsParent : kIsChild);
  if (!parent) config.loads = config.policy;
}

void narrow_to_cpu(Config& config, std::string_view because) {
  config.policy = Policy::kForceCpu;
  config.because = because;
  config.decided_by = {};
}

bool wants_line(Log log, bool first) { return log == Log::kAll || (log == Log::kDeny && first); }

}  // namespace cudaguard

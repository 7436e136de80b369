// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/preload/given_rules.h"

#include "policy/decision.h"
#include "policy/process_rules.h"
#include "shim/guard/text/message.h"
#include "shim/launcher/message.h"
#include "shim/launcher/preload/rule_warnings.h"

namespace cudaguard::launcher {

namespace {

/// The decision without rules.
Decision without_rules(const Variables& variables) {
  Environment environment = read_environment([&](const char* name) { return variables.get(name); });
  environment.rules = nullptr;
  return decide(environment);
}

std::string with_list(std::string rule, std::string_view list) {
  return list.empty() ? rule : rule.append(" gpus=\"").append(list).append("\"");
}

}  // namespace

std::vector<std::string> check_rules(const std::vector<std::string>& rules) {
  std::vector<std::string> warnings;
  for (const std::string& text : rules) {
    const std::string start = "--rule " + in_quotes(text) + ": ";
    ProcessRule rule;
    bool some = false;
    for (RuleText rest = {text, RuleSource::kOption}; take_rule(rest, rule); some = true) {
      if (rule.mistake.why != RuleMistake::Why::kNone) {
        throw Refusal(kRefused,
                      start + text_of([&](Text& out) { put_rule_mistake(out, rule.mistake); }));
      }
      for (const std::string& clause : warnings_about_conditions(rule)) {
        warnings.push_back(start + clause);
      }
    }
    if (!some) throw Refusal(kRefused, "--rule needs a value");
  }
  return warnings;
}

bool has_rules(const Variables& variables) {
  return variables.has(row_of(Variable::kProcessRules).name);
}

std::vector<std::string> reports_of(const Variables& variables) {
  const char* rules = variables.get(row_of(Variable::kProcessRules).name);
  std::vector<std::string> reports;
  ProcessRule rule;
  for (RuleText rest = {rules == nullptr ? "" : rules, RuleSource::kVariable};
       take_rule(rest, rule);) {
    if (rule.has(RuleKey::kReport)) reports.emplace_back(rule.value(RuleKey::kReport));
  }
  return reports;
}

std::string rule_for_all(const Variables& variables) {
  const Decision decision = without_rules(variables);
  return with_list(std::string(name_of(decision.calls)), decision.allow_list.text);
}

std::string rules_of_outer_run(const Variables& variables) {
  const std::string first = rule_for_all(variables);
  const std::string_view list = without_rules(variables).allow_list.text;
  const char* outer = variables.get(row_of(Variable::kProcessRules).name);
  std::string text = first;
  ProcessRule rule;
  for (RuleText rest = {outer == nullptr ? "" : outer, RuleSource::kVariable};
       take_rule(rest, rule);) {
    if (rule.mistake.why != RuleMistake::Why::kNone) return std::string(name_of(Policy::kForceCpu));
    if (rule.begins_list) text.append(" & ").append(first);
    // A rule without a list keeps that of the variables, which an option may replace.
    const bool own_list = rule.has(RuleKey::kGpus) || !allows_cuda(rule.policy);
    text.append("; ").append(with_list(std::string(rule.text), own_list ? "" : list));
  }
  return text;
}

bool may_allow_cuda(std::string_view rules) {
  bool some = false;  // in this list
  ProcessRule rule;
  for (RuleText rest = {rules, RuleSource::kVariable}; take_rule(rest, rule);) {
    if (rule.begins_list && !some) return false;
    some = (some && !rule.begins_list) || rule.policy != Policy::kForceCpu;
  }
  return some;
}

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
#include "policy/config.h"

namespace cudaguard {

namespace {

template <typename Value>
struct Choice {
  std::string_view name;  // upper case, '_' between words
  Value value;
};

constexpr Choice<Policy> kPolicies[] = {{"FORCE_CPU", Policy::kForceCpu}, {"OFF", Policy::kOff}};
constexpr Choice<Log> kLogs[] = {{"OFF", Log::kOff}, {"DENY", Log::kDeny}, {"ALL", Log::kAll}};

constexpr char folded(char c) {
  if (c >= 'a' && c <= 'z') return static_cast<char>(c - 'a' + 'A');
  return c == '-' ? '_' : c;
}

bool same_word(std::string_view text, std::string_view upper) {
  if (text.size() != upper.size()) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (folded(text[i]) != upper[i]) return false;
  }
  return true;
}

/// Reads one variable into `value`. An empty variable is an unset one, as in most shells' scripts.
template <typename Value, size_t N>
void parse_choice(Config& config, const char* text, std::string_view variable,
                  const Choice<Value> (&choices)[N], std::string_view accepted,
                  std::string_view instead, Value fallback, Value& value) {
  if (text == nullptr || *text == '\0') return;
  for (const auto& choice : choices) {
    if (same_word(text, choice.name)) {
      value = choice.value;
      return;
    }
  }
  value = fallback;
  config.complaints[config.complaint_count++] = {variable, text, accepted, instead};
}

}  // namespace

Config parse_config(const Environment& environment) {
  Config config;
  config.privileged = environment.privileged;
  if (environment.privileged) return config;
  // A forked child keeps its parent's policy; a value of its own can only narrow that.
  const bool narrow =
      environment.inherited != nullptr && *environment.inherited == Policy::kForceCpu;
  if (environment.inherited != nullptr) config.policy = *environment.inherited;
  parse_choice(config, environment.policy, "CUDAGUARD_POLICY", kPolicies, "FORCE_CPU, OFF",
               "FORCE_CPU applies", Policy::kForceCpu, config.policy);
  if (narrow) config.policy = Policy::kForceCpu;
  parse_choice(config, environment.log, "CUDAGUARD_LOG", kLogs, "off, deny, all", "deny applies",
               Log::kDeny, config.log);
  if (environment.report != nullptr) {
    const std::string_view path = environment.report;
    if (path.size() > kMaxReportPath) {
      config.complaints[config.complaint_count++] = {"CUDAGUARD_REPORT", path,
                                                     "a path of at most 4095 bytes", "no report"};
    } else {
      config.report = path;
    }
  }
  return config;
}

bool wants_line(Log log, bool first) { return log == Log::kAll || (log == Log::kDeny && first); }

std::string_view name_of(Policy policy) {
  return policy == Policy::kForceCpu ? "FORCE_CPU" : "OFF";
}

}  // namespace cudaguard

// SPDX-License-Identifier: Apache-2.0
#include "policy/config.h"

#include "policy/text.h"

namespace cudaguard {

namespace {

template <typename Value>
struct Choice {
  std::string_view name;  // upper case, '_' between words
  Value value;
};

constexpr Choice<Policy> kPolicies[] = {{"FORCE_CPU", Policy::kForceCpu},
                                        {"VALIDATE", Policy::kValidate},
                                        {"CLAMP", Policy::kClamp},
                                        {"OFF", Policy::kOff}};
constexpr Choice<Log> kLogs[] = {{"OFF", Log::kOff}, {"DENY", Log::kDeny}, {"ALL", Log::kAll}};
constexpr Choice<bool> kChildren[] = {{"FORCE_CPU", true}};
constexpr std::string_view kForceCpuApplies = "FORCE_CPU applies";
constexpr std::string_view kVisibleDevices = "CUDAGUARD_VISIBLE_DEVICES";

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

/// A process id: decimal digits alone. 0: it is none.
uint32_t process_id(std::string_view text) {
  uint32_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9' || value > 400'000'000) return 0;
    value = value * 10 + static_cast<uint32_t>(c - '0');
  }
  return value;
}

/// 0: strictest.
int looseness(Policy policy) {
  if (policy == Policy::kForceCpu) return 0;
  return policy == Policy::kOff ? 2 : 1;
}

void complain(Config& config, const Complaint& complaint) {
  config.complaints[config.complaint_count++] = complaint;
}

void parse_list(const Environment& environment, Config& config) {
  if (environment.visible_devices == nullptr) return;
  const std::string_view text = environment.visible_devices;
  const bool named = environment.policy != nullptr && *environment.policy != '\0';
  if (!named) config.policy = Policy::kValidate;
  if (config.policy == Policy::kOff) return;  // asked for by name
  if (config.policy == Policy::kForceCpu) {
    if (config.complaint_count == 0 && !text.empty()) {
      complain(config,
               {kVisibleDevices, text, {}, "has no effect under CUDAGUARD_POLICY=FORCE_CPU"});
    }
    return;
  }
  if (text.size() > kMaxVisibleDevices) {
    config.list_error = {ListError::Why::kTooMany, kMostGpus + 1, {}};
  } else {
    const AllowList list = parse_allow_list(text);
    config.list_error = list.error;
    if (list.none) return narrow_to_cpu(config, "CUDAGUARD_VISIBLE_DEVICES allows no GPU");
  }
  if (config.list_error.why != ListError::Why::kNone) {
    config.bad_list = head(text, kMaxVisibleDevices);
    return narrow_to_cpu(config, "CUDAGUARD_VISIBLE_DEVICES is not accepted");
  }
  config.visible_devices = text;
}

/// A later value can only narrow what the parent was allowed.
void keep_within(const Inherited& parent, Config& config) {
  if (looseness(config.policy) > looseness(parent.policy)) config.policy = parent.policy;
  if (config.policy == Policy::kForceCpu) return;
  if (!parent.visible_devices.empty()) config.visible_devices = parent.visible_devices;
}

}  // namespace

Config parse_config(const Environment& environment) {
  Config config;
  config.privileged = environment.privileged;
  if (environment.privileged) return config;
  // A forked child whose environment says nothing keeps its parent's policy.
  if (environment.inherited != nullptr) config.policy = environment.inherited->policy;
  parse_choice(config, environment.policy, "CUDAGUARD_POLICY", kPolicies,
               "FORCE_CPU, VALIDATE, CLAMP, OFF", kForceCpuApplies, Policy::kForceCpu,
               config.policy);
  parse_list(environment, config);
  if (environment.inherited != nullptr) keep_within(*environment.inherited, config);
  parse_choice(config, environment.children, "CUDAGUARD_CHILDREN", kChildren, "FORCE_CPU",
               kForceCpuApplies, true, config.children_cpu);
  if (environment.root != nullptr && *environment.root != '\0') {
    config.root = process_id(environment.root);
    if (config.root == 0) {
      complain(config, {"CUDAGUARD_ROOT", environment.root, "a process id", kForceCpuApplies});
      config.root = UINT32_MAX;  // nobody
    }
  }
  parse_choice(config, environment.log, "CUDAGUARD_LOG", kLogs, "off, deny, all", "deny applies",
               Log::kDeny, config.log);
  if (environment.report != nullptr) {
    const std::string_view path = environment.report;
    if (path.size() > kMaxReportPath) {
      complain(config, {"CUDAGUARD_REPORT", path, "a path of at most 4095 bytes", "no report"});
    } else {
      config.report = path;
    }
  }
  return config;
}

bool is_child(const Config& config, const Place& place) {
  if (!config.children_cpu || !lets_through(config.policy)) return false;
  if (config.root != 0) return place.pid != config.root;
  return place.forked || place.parent_carries_variable;
}

void narrow_to_cpu(Config& config, std::string_view because) {
  config.policy = Policy::kForceCpu;
  config.because = because;
}

bool wants_line(Log log, bool first) { return log == Log::kAll || (log == Log::kDeny && first); }

std::string_view name_of(Policy policy) {
  for (const auto& choice : kPolicies) {
    if (choice.value == policy) return choice.name;
  }
  return {};
}

}  // namespace cudaguard

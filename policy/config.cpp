// SPDX-License-Identifier: Apache-2.0
#include "policy/config.h"

#include "policy/text.h"

namespace cudaguard {

namespace {

struct Choice {
  char name[10];  // upper case, '_' between words; no pointer, which would need a relocation
  uint8_t value;
};
struct Choices {
  char variable[20];
  char accepted[32];
  char instead[48];   // of a value that is not accepted
  uint8_t fallback;   // that
  Choice choices[4];  // up to the first without a name
};

constexpr uint8_t number(Policy policy) { return static_cast<uint8_t>(policy); }
constexpr uint8_t number(Log log) { return static_cast<uint8_t>(log); }

constexpr Choices kPolicies = {"CUDAGUARD_POLICY",
                               "FORCE_CPU, VALIDATE, CLAMP, OFF",
                               "FORCE_CPU applies",
                               number(Policy::kForceCpu),
                               {{"FORCE_CPU", number(Policy::kForceCpu)},
                                {"VALIDATE", number(Policy::kValidate)},
                                {"CLAMP", number(Policy::kClamp)},
                                {"OFF", number(Policy::kOff)}}};
constexpr Choices kLogs = {"CUDAGUARD_LOG",
                           "off, error, deny, all",
                           "deny applies",
                           number(Log::kDeny),
                           {{"OFF", number(Log::kOff)},
                            {"DENY", number(Log::kDeny)},
                            {"ERROR", number(Log::kError)},
                            {"ALL", number(Log::kAll)}}};
constexpr Choices kChildren = {"CUDAGUARD_CHILDREN",
                               "FORCE_CPU",
                               "FORCE_CPU applies to all processes but the root",
                               1,
                               {{"FORCE_CPU", 1}, {"", 0}, {"", 0}, {"", 0}}};
constexpr char kNoRoot[] = "needs sh -c 'CUDAGUARD_ROOT=$$ exec APP'; FORCE_CPU applies";
constexpr char kVisibleDevices[] = "CUDAGUARD_VISIBLE_DEVICES";

constexpr char folded(char c) {
  if (c >= 'a' && c <= 'z') return static_cast<char>(c - 'a' + 'A');
  return c == '-' ? '_' : c;
}

bool same_word(const char* text, const char* upper) {
  while (*text != '\0' && folded(*text) == *upper) {
    ++text;
    ++upper;
  }
  return *text == '\0' && *upper == '\0';
}

void complain(Config& config, const char* variable, std::string_view value, const char* accepted,
              const char* instead) {
  Complaint& complaint = config.complaints[config.complaint_count++];
  complaint.variable = variable;
  complaint.value = value;
  complaint.accepted = accepted;
  complaint.instead = instead;
}

/// Reads one variable; `value` if it is unset. An empty variable is an unset one, as in most
/// shells' scripts.
uint8_t parse_choice(Config& config, const char* text, const Choices& among, uint8_t value) {
  if (text == nullptr || *text == '\0') return value;
  for (const auto& choice : among.choices) {
    if (same_word(text, choice.name)) return choice.value;
  }
  complain(config, among.variable, text, among.accepted, among.instead);
  return among.fallback;
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

void parse_list(const Environment& environment, Config& config) {
  if (environment.visible_devices == nullptr) return;
  const std::string_view text = environment.visible_devices;
  const bool named = environment.policy != nullptr && *environment.policy != '\0';
  if (!named) config.policy = Policy::kValidate;
  if (config.policy == Policy::kOff) return;  // asked for by name
  if (config.policy == Policy::kForceCpu) {
    if (config.complaint_count == 0 && !text.empty()) {
      complain(config, kVisibleDevices, text, "", "has no effect under CUDAGUARD_POLICY=FORCE_CPU");
    }
    return;
  }
  if (text.size() > kMaxVisibleDevices) {
    config.list_error = {ListError::Why::kTooLong, 0, {}};
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

/// CUDAGUARD_ROOT: "41" or, as the launcher writes it, "41:pid:[4026531836]". Without one nobody
/// can tell who may keep the GPU.
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
    complain(config, "CUDAGUARD_ROOT", text, "a process id", "no process is the root");
    config.root = UINT32_MAX;  // nobody
  } else if (config.children_cpu && !config.forked_child && lets_through(config.policy)) {
    complain(config, kChildren.variable, {}, "", kNoRoot);
    narrow_to_cpu(config, "no CUDAGUARD_ROOT");
  }
}

/// Is every entry of the list, as it is written, in the other one?
bool is_part_of(std::string_view list, std::string_view other) {
  while (!list.empty()) {
    if (place_of_entry(other, take_entry(list)) == std::string_view::npos) return false;
  }
  return true;
}

/// A later value can only narrow what the parent was allowed.
void keep_within(const Inherited& parent, Config& config) {
  if (rules_of(config.policy).freedom > rules_of(parent.policy).freedom)
    config.policy = parent.policy;
  if (config.policy == Policy::kForceCpu || parent.visible_devices.empty()) return;
  if (config.visible_devices.empty() ||
      is_part_of(parent.visible_devices, config.visible_devices)) {
    config.visible_devices = parent.visible_devices;
  } else if (!is_part_of(config.visible_devices, parent.visible_devices)) {
    config.visible_devices = {};
    narrow_to_cpu(config, "CUDAGUARD_VISIBLE_DEVICES is not a part of the parent's");
  }
}

}  // namespace

Config parse_config(const Environment& environment) {
  Config config;
  config.privileged = environment.privileged;
  if (environment.privileged) return config;
  config.in_run = environment.presets != nullptr;
  // A forked child whose environment says nothing keeps its parent's policy.
  if (environment.inherited != nullptr) config.policy = environment.inherited->policy;
  config.policy = static_cast<Policy>(
      parse_choice(config, environment.policy, kPolicies, number(config.policy)));
  parse_list(environment, config);
  if (environment.inherited != nullptr) keep_within(*environment.inherited, config);
  config.children_cpu = parse_choice(config, environment.children, kChildren, 0) != 0;
  if (environment.inherited != nullptr && environment.inherited->children_cpu) {
    config.children_cpu = true;
    config.forked_child = true;
  }
  parse_root(environment, config);
  config.log = static_cast<Log>(parse_choice(config, environment.log, kLogs, number(Log::kDeny)));
  if (environment.report != nullptr) {
    const std::string_view path = environment.report;
    if (path.size() > kMaxReportPath) {
      complain(config, "CUDAGUARD_REPORT", path, "a path of at most 4095 bytes", "no report");
    } else {
      config.report = path;
    }
  }
  return config;
}

bool is_child(const Config& config, const Place& place) {
  if (!config.children_cpu || !lets_through(config.policy)) return false;
  return config.forked_child || place.pid != config.root ||
         (!config.root_namespace.empty() && config.root_namespace != place.pid_namespace);
}

void narrow_to_cpu(Config& config, std::string_view because) {
  config.policy = Policy::kForceCpu;
  config.because = because;
}

bool wants_line(Log log, bool first) { return log == Log::kAll || (log == Log::kDeny && first); }

std::string_view name_of(Policy policy) {
  for (const auto& choice : kPolicies.choices) {
    if (choice.value == number(policy)) return choice.name;
  }
  return {};
}

}  // namespace cudaguard

// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/preload/rule_warnings.h"

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "policy/device_list.h"
#include "policy/variables.h"
#include "shim/guard/rules/rule_files.h"
#include "shim/launcher/message.h"
#include "shim/launcher/preload/machine_rules.h"

namespace cudaguard::launcher {

namespace {

namespace fs = std::filesystem;

constexpr char kDriversGpus[] = "/proc/driver/nvidia/gpus";

/// True if a "[" of the glob stands for itself, because no "]" follows it.
bool has_open_set(const std::string& glob) {
  for (size_t at = 0; (at = glob.find('[', at)) != std::string::npos; ++at) {
    size_t inside = at + 1;
    if (inside < glob.size() && glob[inside] == '!') ++inside;
    at = glob.find(']', inside + 1);
    if (at == std::string::npos) return true;
  }
  return false;
}

constexpr char kWildcards[] = "*?[";

bool is_glob(const std::string& text) {
  return text.find_first_of(kWildcards) != std::string::npos;
}

/// The paths of programs and cgroups begin with a slash.
bool matches_no_path(const std::string& glob) {
  return !glob.starts_with("/") && glob.find_first_of(kWildcards) != 0;
}

/// Returns the path without links, or nothing if there is no such file.
std::string resolved(const std::string& path) {
  char room[PATH_MAX];
  return realpath(path.c_str(), room) == nullptr ? "" : room;
}

bool is_script(const std::string& path) {
  char start[2] = {};
  std::ifstream(path, std::ios::binary).read(start, sizeof start);
  return start[0] == '#' && start[1] == '!';
}

/// Returns what PATH's directories have by this name, without links: a program of this name first.
std::string found_in_path(const std::string& name) {
  const char* path = getenv("PATH");  // NOLINT(concurrency-mt-unsafe): one thread
  std::string rest = path == nullptr ? "" : path;
  std::string found;
  while (!rest.empty()) {
    const std::string directory = rest.substr(0, rest.find(':'));
    rest.erase(0, directory.size() + 1);
    const std::string file = resolved(directory + "/" + name);
    if (file.empty()) continue;
    const bool same = base_name(file) == name;
    if (same && !is_script(file)) return file;
    if (found.empty() || same) found = file;
  }
  return found;
}

/// The kernel knows the path of a process's file, without links and of a script's interpreter.
std::string about_program(const std::string& glob) {
  if (glob.find('/') != std::string::npos && matches_no_path(glob)) {
    return " is no full path, so it matches no program";
  }
  if (is_glob(glob)) return {};
  constexpr char kScript[] = " is a script, whose interpreter runs; use args= instead";
  if (glob.starts_with("/")) {
    const std::string file = resolved(glob);
    if (file.empty()) return " does not exist";
    std::error_code error;
    if (fs::is_directory(file, error)) {
      return " is a directory; write program=" + printable(file == "/" ? "" : file) + "/*";
    }
    if (is_script(file)) return kScript;
    return file == glob ? "" : " is a link; write " + printable(file);
  }
  const std::string file = found_in_path(glob);
  if (file.empty()) return {};
  if (is_script(file)) return kScript;
  const std::string name(base_name(file));
  return name == glob ? "" : " is only a link in PATH; write " + printable(name);
}

/// Asks the guard's own code, as for a process whose user has no name. It looks up users and groups
/// in the same way.
bool knows_name(const RuleFact& names, const std::string& name) {
  constexpr uint32_t kNameless = UINT32_MAX;
  RuleFacts facts;
  facts.user_file = names;
  facts.knows_user = true;
  facts.user = kNameless;
  return !decide_by_rules("OFF user=\"" + name + "\"", RuleSource::kFile, facts, {}).unsure;
}

std::string about_name(const std::string& name, RuleKey key) {
  const char* const path = file_of_names(key);
  const std::string text = beginning_of(path);
  const RuleFact names = fact_of_names(text);
  if (knows_name(names, name)) return {};
  return std::string(" is not in ") + (names.cut ? "the first MiB of " : "") + path +
         ", so it may mean any " + kRuleKeys[static_cast<size_t>(key)] +
         " that is not in it either; write the number, or remove the rule";
}

std::string about_report(const std::string& path) {
  if (path == kSyslog || path.starts_with("/dev/")) return {};
  const std::string directory(directory_of(path));
  if (directory.find('%') != std::string::npos) return {};
  std::error_code error;
  if (!path.ends_with('/') && fs::is_directory(path, error)) {
    return " is a directory; write report=" + printable(path) + "/";
  }
  if (directory.empty() || fs::is_directory(directory, error)) return {};
  return ": there is no directory " + printable(directory);
}

/// Counts the GPUs without a question to the driver, which may hang.
std::string about_gpus(const std::string& list) {
  std::error_code error;
  const auto entries = fs::directory_iterator(kDriversGpus, error);
  const auto count = error ? 0 : std::distance(begin(entries), end(entries));
  const AllowList parsed = parse_allow_list(list);
  for (size_t i = 0; i < parsed.count && count > 0; ++i) {
    const AllowEntry& entry = parsed.entries[i];
    if (entry.kind != AllowEntry::Kind::kIndex || entry.index < count) continue;
    return ": this machine has no GPU " + std::to_string(entry.index);
  }
  return {};
}

std::string about(RuleKey key, const std::string& value) {
  const bool glob = key <= RuleKey::kArgs || key == RuleKey::kCgroup;
  if (glob && has_open_set(value)) return " has a [ that is not closed, so it matches only a [";
  switch (key) {
    case RuleKey::kProgram:
      return about_program(value);
    case RuleKey::kArgs:
      return value.find('*') != std::string::npos
                 ? ""
                 : " matches only this whole command line; write args=\"*" + printable(value) +
                       "*\" for a part";
    case RuleKey::kUser:
    case RuleKey::kGroup:
      return about_name(value, key);
    case RuleKey::kCgroup:
      return matches_no_path(value) ? " is no full path, so it matches no process" : "";
    case RuleKey::kReport:
      return about_report(value);
    case RuleKey::kGpus:
      return about_gpus(value);
    default:
      return {};
  }
}

/// Of the rule's first keys, as many as `most`.
std::vector<std::string> warnings_about(const ProcessRule& rule, size_t most) {
  std::vector<std::string> found;
  for (size_t i = 0; i < most; ++i) {
    const auto key = static_cast<RuleKey>(i);
    if (!rule.has(key)) continue;
    const std::string value(rule.value(key));
    const std::string text = about(key, value);
    if (!text.empty()) found.push_back(std::string(kRuleKeys[i]) + "=" + in_quotes(value) + text);
  }
  return found;
}

}  // namespace

std::vector<std::string> warnings_about(const ProcessRule& rule) {
  return warnings_about(rule, std::size(kRuleKeys));
}

std::vector<std::string> warnings_about_conditions(const ProcessRule& rule) {
  return warnings_about(rule, static_cast<size_t>(kFirstAction));
}

bool matches_all(const ProcessRule& rule) {
  return rule.mistake.why == RuleMistake::Why::kNone &&
         (rule.given & (bit_of(kFirstAction) - 1)) == 0;
}

bool has_more_files() {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(kRuleDirectory, error)) {
    const std::string name = entry.path().filename();
    if (name.ends_with(".conf") && !name.starts_with('.')) return true;
  }
  return false;
}

}  // namespace cudaguard::launcher

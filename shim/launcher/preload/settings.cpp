// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/preload/settings.h"

#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <utility>

#include "policy/decision.h"
#include "policy/device_list.h"
#include "policy/selection.h"
#include "policy/text.h"
#include "shim/guard/text/message.h"
#include "shim/launcher/format.h"
#include "shim/launcher/message.h"
#include "shim/launcher/preload/given_rules.h"

namespace cudaguard::launcher {

namespace {

#if defined(__x86_64__)
#define CG_ARCHITECTURE "x86_64"
#else
#define CG_ARCHITECTURE "aarch64"
#endif

constexpr const char* kPolicy = row_of(Variable::kPolicy).name;
constexpr const char* kVisible = row_of(Variable::kVisibleDevices).name;
constexpr const char* kChildren = row_of(Variable::kChildren).name;
constexpr const char* kFirstProcess = row_of(Variable::kFirstProcess).name;
constexpr const char* kProcessRules = row_of(Variable::kProcessRules).name;
constexpr const char* kLog = row_of(Variable::kLog).name;
constexpr const char* kPreset = row_of(Variable::kPresets).name;
constexpr const char* kCudaVisible = "CUDA_VISIBLE_DEVICES";

struct Preset {
  const char* name;
  const char* value;
  bool in_cache = false;            // the value is a file in the user's cache directory
  const char* also_read = nullptr;  // if this variable is set, the user has chosen
};
// Programs that detect GPUs without the driver, or print long errors if there is none.
constexpr Preset kPresets[] = {
    {kCudaVisible, ""},             // frameworks that read it before they ask the driver
    {"JAX_PLATFORMS", "cpu"},       // otherwise JAX prints a traceback
    {"MPIR_CVAR_ENABLE_GPU", "0"},  // MPICH asks for a GPU in MPI_Init
    // GStreamer caches "nvcodec can do nothing", also for unguarded programs. The file's name has
    // the architecture, like GStreamer's own. GStreamer reads this variable first.
    {"GST_REGISTRY_1_0", "/cudaguard/gstreamer-1.0/registry." CG_ARCHITECTURE ".bin", true,
     "GST_REGISTRY"}};

// gcc's AddressSanitizer ends a program in which the guard comes before its runtime. This launcher
// puts the runtime first in its own program only; in a child with ASan, the guard comes first.
constexpr const char* kAsanOptions = "ASAN_OPTIONS";
constexpr std::string_view kAsanOption = "verify_asan_link_order";

bool is_given(const char* value) { return value != nullptr && *value != '\0'; }

/// How a user writes the setting: `--policy "x"`, `CUDAGUARD_POLICY="x"`.
std::string given(const GuardSettings& settings, Variable variable, std::string_view value) {
  const std::string_view option = option_for(variable, settings);
  const std::string name =
      option.empty() ? std::string(row_of(variable).name) + "=" : "--" + std::string(option) + " ";
  return text_of([&](Text& out) { out.print("%c\"%s\"", name.c_str(), value); });
}

/// What users write for an accepted word, because other tools call it so.
struct Synonym {
  Variable variable;
  std::string_view word;
  const char* meant;
};
constexpr Synonym kSynonyms[] = {{Variable::kPolicy, "cpu", "FORCE_CPU"},
                                 {Variable::kPolicy, "none", "FORCE_CPU"},
                                 {Variable::kPolicy, "deny", "FORCE_CPU"},
                                 {Variable::kPolicy, "gpu", "VALIDATE"},
                                 {Variable::kPolicy, "allow", "VALIDATE"},
                                 {Variable::kLog, "none", "off"},
                                 {Variable::kLog, "quiet", "off"},
                                 {Variable::kLog, "silent", "off"},
                                 {Variable::kLog, "warn", "deny"},
                                 {Variable::kLog, "warning", "deny"},
                                 {Variable::kLog, "debug", "all"},
                                 {Variable::kVisibleDevices, "all", "--policy VALIDATE"},
                                 {Variable::kVisibleDevices, "none", "--cpu"}};

std::string hint_for(Variable variable, std::string_view word) {
  const auto* const found = std::ranges::find_if(kSynonyms, [&](const Synonym& one) {
    return one.variable == variable && one.word.size() == word.size() &&
           strncasecmp(one.word.data(), word.data(), word.size()) == 0;
  });
  return found == std::end(kSynonyms) ? "" : std::string("; did you mean ") + found->meant + "?";
}

[[noreturn]] void refuse_complaint(const GuardSettings& settings, Complaint complaint) {
  const auto* const row = std::find_if(
      std::begin(kVariables), std::end(kVariables),
      [&](const VariableRow& variable) { return complaint.variable == variable.name; });
  const auto variable = static_cast<Variable>(row - std::begin(kVariables));
  const std::string launchers = std::string(complaint.accepted) + ", " + kIfHealthy;
  const bool is_word = variable == Variable::kPolicy && !complaint.accepted.empty();
  if (is_word && !settings.policy) complaint.accepted = launchers;
  throw Refusal(kRefused, given(settings, variable, complaint.value) + " " +
                              text_of([&](Text& out) { put_complaint(out, complaint); }) +
                              hint_for(variable, complaint.value));
}

[[noreturn]] void refuse_list(const GuardSettings& settings, std::string_view list,
                              const ListError& error) {
  throw Refusal(kRefused, given(settings, Variable::kVisibleDevices, list) + ": " +
                              text_of([&](Text& out) { put_list_error(out, error, 0); }) +
                              hint_for(Variable::kVisibleDevices, list));
}

/// The word of --children; kUnset if it is none, or not given.
Children children_of(const GuardSettings& settings) {
  const auto* const word =
      std::find(std::begin(kChildrenWords), std::end(kChildrenWords), settings.children);
  return static_cast<Children>(word - std::begin(kChildrenWords));
}

/// True if --children allows CUDA, under a policy for the descendants.
bool favours_descendants(const GuardSettings& settings) {
  return favours_descendants(children_of(settings));
}

/// True if CUDAGUARD_CHILDREN, perhaps of an outer run, allows it for the descendants.
bool favours_descendants(const Variables& variables) {
  const char* word = variables.get(kChildren);
  const size_t place =
      place_of_word(row_of(Variable::kChildren).accepted, word == nullptr ? "" : word);
  return place != std::string_view::npos && favours_descendants(static_cast<Children>(place));
}

/// True if --children chooses the processes that make contexts, and the policy allows none.
bool contradicts(const GuardSettings& settings, Policy policy) {
  const Children children = children_of(settings);
  return refuses_contexts(policy) &&
         (children == Children::kNoContext || children == Children::kOnlyContexts);
}

[[noreturn]] void refuse_fence(const GuardSettings& settings, Policy policy) {
  const std::string shown(name_of(policy));
  const std::string other = settings.policy                 ? "--policy " + shown
                            : favours_descendants(settings) ? "--children=" + *settings.children
                            : !settings.rules.empty()       ? "--rule"
                                                            : "";
  if (settings.gpus) {
    throw Refusal(
        kRefused,
        "--fence and --gpus contradict each other; leave one out, or use --fence=devices");
  }
  const bool may_list = settings.wants_device_fence() && allows_cuda(policy);
  throw Refusal(kRefused,
                (other.empty() ? "--fence allows no CUDA, and the policy is " + shown +
                                     "; add --cpu, or leave --fence out"
                               : "--fence and " + other + " contradict each other; leave one out") +
                    (may_list ? ", or name the GPUs that it leaves: --gpus LIST" : ""));
}

void refuse_empty(const GuardSettings& settings) {
  for (const OptionRow& option : kOptions) {
    // An empty list is a list without a GPU.
    if (!option.sets || option.sets == Variable::kVisibleDevices) continue;
    if (value_of(option, settings) == "") {
      throw Refusal(kRefused, "--" + std::string(option.name) + " needs a value");
    }
  }
}

/// The policy of a word from an option or the environment; null gives the default. Throws Refusal
/// for a bad word.
Policy policy_of(const GuardSettings& settings, const char* word) {
  Environment environment;
  environment.policy = word;
  const Decision decision = decide(environment);
  const Mistakes& found = decision.mistakes;
  if (found.complaint_count > 0) refuse_complaint(settings, found.complaints[0]);
  return decision.calls;
}

/// `policy` is the value of --policy.
void check_contradictions(const GuardSettings& settings, Policy policy) {
  const auto contradict = [](const std::string& one, const std::string& other) {
    throw Refusal(kRefused, one + " and " + other + " contradict each other; leave one out");
  };
  if (settings.children && children_of(settings) == Children::kUnset) {
    const std::vector<std::string> words(std::begin(kChildrenWords), std::end(kChildrenWords));
    throw Refusal(kRefused, "--children " + in_quotes(*settings.children) +
                                " is not accepted (accepted: " + joined(words, ", ") + ")");
  }
  if (settings.cpu && settings.gpus) contradict("--cpu", "--gpus");
  if (settings.cpu && settings.children) contradict("--cpu", "--children");
  if (!settings.policy) return;
  const std::string shown = "--policy " + std::string(name_of(policy));
  if (settings.cpu && policy != Policy::kForceCpu) contradict("--cpu", shown);
  if (settings.gpus && !allows_cuda(policy)) contradict("--gpus", shown);
  if (settings.children && !allows_cuda(policy)) contradict("--children", shown);
  if (contradicts(settings, policy)) contradict("--children=" + *settings.children, shown);
  if (settings.observe && policy == Policy::kOff) contradict("--observe", shown);
}

/// Sets CUDAGUARD_POLICY: an option, then the environment, then FORCE_CPU. Returns that
/// policy; none if it stays unset, because a list in the environment chooses VALIDATE.
std::optional<Policy> set_policy(const GuardSettings& settings, Policy wanted,
                                 Variables& variables) {
  const auto set = [&](Policy policy) {
    variables.set(kPolicy, name_of(policy));
    return policy;
  };
  if (settings.policy) {
    variables.set(kPolicy, *settings.policy);
    return wanted;
  }
  const char* word = variables.get(kPolicy);
  const bool named = is_given(word);
  const bool through = settings.gpus || favours_descendants(settings) ||
                       (settings.observe && !settings.wants_fence());
  if (settings.cpu) return set(Policy::kForceCpu);
  if (!through && !named) {
    if (variables.has(kVisible)) return {};
    return set(Policy::kForceCpu);
  }
  const Policy policy = policy_of(settings, word);
  // CLAMP from the environment is compatible with a list; FORCE_CPU and OFF are not. NO_CONTEXT is
  // not with a choice of who makes contexts.
  const bool replaced =
      contradicts(settings, policy) || (through && !(named && allows_cuda(policy)));
  return replaced ? set(Policy::kValidate) : policy;
}

/// Sets CUDAGUARD_POLICY and CUDAGUARD_ROOT.
void set_devices(const GuardSettings& settings, Variables& variables) {
  const Policy wanted = policy_of(settings, settings.policy ? settings.policy->c_str() : nullptr);
  check_contradictions(settings, wanted);
  const std::optional<Policy> policy = set_policy(settings, wanted, variables);
  // verify gives all processes the same policy.
  if (settings.no_gpu_presets) variables.unset(kChildren);
  if (policy && !allows_cuda(*policy)) {
    // Removes old settings that mean nothing under the chosen policy.
    variables.unset(kVisible);
    variables.unset(kChildren);
    if (settings.children) {
      if (settings.wants_device_fence()) throw Refusal(kRefused, "--children needs --gpus");
      if (settings.wants_fence()) {
        throw Refusal(kRefused, "--fence and --children=" + *settings.children +
                                    " contradict each other; leave one out");
      }
      std::vector<std::string> allowing;
      for (const PolicyRow& row : kPolicies) {
        if (allows_cuda(row.policy) && !contradicts(settings, row.policy)) {
          allowing.push_back("--policy " + std::string(name_of(row.policy)));
        }
      }
      throw Refusal(kRefused, "--children needs --gpus, " + joined(allowing, " or "));
    }
  }
  // A worker whose parent denies devices to its children must not become a first process by
  // accident; only an option makes it one. exec keeps the process id. One whose parent leaves them
  // to its children would lose them as a first process.
  const bool asked = settings.children || settings.cpu ||
                     ((settings.gpus || settings.policy) && !favours_descendants(variables));
  if (asked || !is_given(variables.get(kChildren)) || !is_given(variables.get(kFirstProcess))) {
    variables.set(kFirstProcess, settings.print ? "$$" : name_of_this_process());
  }
}

/// Sets CUDAGUARD_RULES. `outer`: what an outer run allows; empty if there is none. A rule narrows
/// that, unless another option allows CUDA; it then narrows this option.
void set_rules(const GuardSettings& settings, const std::string& outer, Variables& variables) {
  const bool asked =
      settings.cpu || settings.gpus || settings.policy || favours_descendants(settings);
  if (settings.rules.empty()) {
    if (asked) variables.unset(kProcessRules);  // the option overrides it
    return;
  }
  std::string text;
  if (!outer.empty()) {
    const std::string own = rule_for_all(variables);
    const bool lifts = asked && own != name_of(Policy::kForceCpu);
    text = (lifts ? own : outer) + " & ";
  }
  for (const std::string& rule : settings.rules) {
    text.append(&rule == &settings.rules.front() ? "" : "\n").append(rule);
  }
  variables.set(kProcessRules, text);
}

/// $XDG_CACHE_HOME or $HOME/.cache, which must be absolute; otherwise empty.
std::string cache_directory(const Variables& variables) {
  for (const auto& [name, below] :
       {std::pair("XDG_CACHE_HOME", ""), std::pair("HOME", "/.cache")}) {
    const char* directory = variables.get(name);
    if (directory != nullptr && *directory == '/') return std::string(directory) + below;
  }
  return {};
}

/// Sets the names even without presets. They show the guard that `run` started it, so that its
/// message gives the right advice. A list is kept, so that messages name the option. `outer`: the
/// names of an outer run, whose marks hold for what this run does not change.
void set_presets(bool wanted, const GuardSettings& settings, std::string_view outer,
                 Variables& variables) {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) {
    const std::string directory = preset.in_cache ? cache_directory(variables) : "";
    const bool nowhere = preset.in_cache && directory.empty();
    const bool chosen = variables.has(preset.name) ||
                        (preset.also_read != nullptr && variables.has(preset.also_read));
    if (!wanted || nowhere || chosen) continue;
    variables.set(preset.name, directory + preset.value);
    names.emplace_back(preset.name);
  }
  const auto has_outer = [&](const char* mark) {
    return place_of_entry(outer, mark) != std::string_view::npos;
  };
  if (settings.unhealthy || has_outer(kUnhealthyMark)) names.emplace_back(kUnhealthyMark);
  const bool kept = variables.has(kChildren) && has_outer(kChildrenMark);
  if (settings.children || kept) names.emplace_back(kChildrenMark);
  const size_t list = outer.find(kGpusMark);
  if (settings.gpus) {
    names.push_back(kGpusMark + *settings.gpus);
  } else if (list != std::string_view::npos && variables.has(kVisible)) {
    names.emplace_back(outer.substr(list));
  }
  variables.set(kPreset, joined(names, ","));
}

/// Returns the position of the GPU in the list, or its size if the list does not have it.
size_t position_of(const AllowEntry& gpu, const AllowList& list) {
  size_t at = 0;
  while (at < list.count && !repeats(gpu, list.entries[at])) ++at;
  return at;
}

/// CUDA_VISIBLE_DEVICES was set before this launcher started, so its numbers are the machine's, or,
/// in a run with a list, positions in this `outer` list. The program reads them as positions in its
/// own list. Returns a warning if some GPUs of the list are left out. Throws Refusal if the numbers
/// cannot be translated, or leave no GPU. The guard itself finds UUIDs in a list of indices.
/// `gpus`: how many the machine has; 0: not known.
std::string translate_visible_devices(const GuardSettings& settings, const AllowList& outer,
                                      size_t gpus, Variables& variables) {
  const char* text = variables.get(kVisible);
  const char* mask = variables.get(kCudaVisible);
  const AllowList list = parse_allow_list(text == nullptr ? "" : text);
  const bool listed = list.count > 0 && list.error.why == ListError::Why::kNone;
  if (mask == nullptr || !listed || (outer.count > 0 && !settings.gpus)) return {};
  const Selection all = select(mask, nullptr, nullptr);
  Selection written = all;
  if (all.numbers) {  // as in CUDA, an index that does not exist ends the list
    View view;
    view.count = outer.count > 0 ? outer.count : gpus;
    if (view.count > 0) written = select(mask, &view, nullptr);
  }
  const AllowList uuids = parse_allow_list(written.numbers ? "" : mask);
  const std::string subject = text_of([&](Text& out) {
    out.print("%c=\"%s\", set before cudaguard, ", kCudaVisible, std::string_view(mask));
  });
  const std::string whose = given(settings, Variable::kVisibleDevices, text);
  const std::string remedy = "; to use all of them: unset " + std::string(kCudaVisible);
  std::string positions;
  std::string left;
  size_t count = 0;
  for (size_t i = 0; i < written.count; ++i) {
    AllowEntry gpu = {.kind = AllowEntry::Kind::kIndex, .index = written.view[i], .text = {}};
    if (!written.numbers || outer.count > 0) {
      const AllowList& known = written.numbers ? outer : uuids;
      if (written.view[i] >= known.count) break;  // as in CUDA, a wrong entry ends the list
      gpu = known.entries[written.view[i]];
    }
    const size_t at = position_of(gpu, list);
    const auto same_kind = [&](const AllowEntry& entry) { return entry.kind == gpu.kind; };
    if (at == list.count && !std::all_of(list.entries, list.entries + list.count, same_kind)) {
      if (!written.numbers) return {};
      throw Refusal(kRefused,
                    subject + "and " + whose +
                        " name GPUs in different ways; write both as indices or as UUIDs");
    }
    if (at == list.count) continue;
    positions.append(count == 0 ? "" : ",").append(std::to_string(at));
    const bool number = list.entries[at].kind == AllowEntry::Kind::kIndex;
    left.append(count > 0 ? "," : number ? "GPU " : "").append(list.entries[at].text);
    ++count;
  }
  // A GPU that comes twice leaves none, as in CUDA. In the shorter list it might come once.
  const bool several = std::string_view(mask).find(',') != std::string::npos;
  const bool twice = uuids.error.why == ListError::Why::kDuplicate ||
                     (several && all.count == 0 && written.count == 0);
  if (twice) count = 0;
  if (written.count > 0 || twice) variables.set(kCudaVisible, twice ? "-1" : positions);
  if (count == list.count) return {};
  if (count == 0 && all.count > 0 && !twice) {
    throw Refusal(kRefused, subject + "leaves no GPU of " + whose + remedy);
  }
  return subject + (count == 0 ? "leaves no GPU" : "leaves only " + left) + " of " + whose + remedy;
}

/// Appends the preset for programs with AddressSanitizer, unless the user has chosen.
void set_asan_option(Variables& variables) {
  constexpr std::string_view kSeparators = " ,:\n\t\r";
  const char* value = variables.get(kAsanOptions);
  std::string options = value == nullptr ? "" : value;
  for (size_t at = 0; (at = options.find(kAsanOption, at)) != std::string::npos; ++at) {
    const bool whole = at == 0 || kSeparators.find(options[at - 1]) != std::string_view::npos;
    if (whole && options.compare(at + kAsanOption.size(), 1, "=") == 0) return;
  }
  if (!options.empty() && kSeparators.find(options.back()) == std::string_view::npos)
    options += ":";
  variables.set(kAsanOptions, options.append(kAsanOption).append("=0"));
}

std::string absolute(const std::string& path) {
  if (path.starts_with("/") || path == kSyslog) return path;
  std::error_code error;
  const std::string directory = std::filesystem::current_path(error).string();
  if (error) {
    throw Refusal(kRefused, "--report: the current directory has no path; give an absolute path");
  }
  return directory + "/" + path;
}

/// Sets the variables of the options that were given, except CUDAGUARD_POLICY.
void set_given(const GuardSettings& settings, Variables& variables) {
  for (const OptionRow& option : kOptions) {
    if (!option.sets || option.sets == Variable::kPolicy || !value_of(option, settings)) continue;
    std::string value = *value_of(option, settings);
    if (option.sets == Variable::kChildren) {
      value =
          word_at(row_of(Variable::kChildren).accepted, static_cast<size_t>(children_of(settings)));
    }
    // The guard would resolve a relative path in the directory that is current at that time.
    if (option.sets == Variable::kReport) value = absolute(value);
    variables.set(row_of(*option.sets).name, value);
  }
}

}  // namespace

void take_back_presets(Variables& variables) {
  const char* names = variables.get(kPreset);
  if (names == nullptr) return;
  for (const Preset& preset : kPresets) {
    const char* value = variables.get(preset.name);
    if (value == nullptr) continue;
    const std::string_view text = value;
    const bool same = preset.in_cache ? text.ends_with(preset.value) : text == preset.value;
    const bool ours = place_of_entry(names, preset.name) != std::string_view::npos;
    if (same && ours) variables.unset(preset.name);
  }
  variables.unset(kPreset);
}

std::vector<std::string> unknown_variables(Variables& variables) {
  constexpr std::string_view kPrefix = "CUDAGUARD_";
  std::vector<std::string> known = {kDoctorTimeout.name, kHello};
  for (const VariableRow& row : kVariables) known.emplace_back(row.name);
  std::vector<std::string> lines;
  for (const char* entry : variables.pointers()) {
    const std::string_view text = entry == nullptr ? "" : entry;
    const std::string name(text.substr(0, text.find('=')));
    if (!name.starts_with(kPrefix) || std::ranges::count(known, name) != 0) continue;
    lines.push_back(printable(name) + " is not a variable of cudaguard" +
                    did_you_mean(name, known, kPrefix.size()));
  }
  return lines;
}

void mark_fenced(Variables& variables) {
  const char* names = variables.get(kPreset);
  const bool some = is_given(names);
  variables.set(kPreset, std::string(kFenceMark) + (some ? "," : "") + (some ? names : ""));
}

std::string name_of_this_process() {
  const std::string number = std::to_string(getpid());
  char space[64];
  const ssize_t size = readlink("/proc/self/ns/pid", space, sizeof space);
  return size <= 0 ? number : number + ":" + std::string(space, static_cast<size_t>(size));
}

bool is_first_process(const Variables& variables) {
  const char* first = variables.get(kFirstProcess);
  const std::string text = first == nullptr ? "" : first;
  return text.substr(0, text.find(':')) == std::to_string(getpid());
}

GuardConfig settle(const GuardSettings& settings, Variables& variables, size_t gpus) {
  refuse_empty(settings);
  std::vector<std::string> about_rules = check_rules(settings.rules);
  const bool inner = variables.has(kPreset);
  const std::string outer_list = inner && variables.has(kVisible) ? variables.get(kVisible) : "";
  const std::string outer = inner ? rules_of_outer_run(variables) : "";
  const std::string outer_presets = inner ? variables.get(kPreset) : "";
  set_devices(settings, variables);
  set_given(settings, variables);
  set_rules(settings, outer, variables);
  const bool log_is_given = is_given(variables.get(kLog));
  if (settings.errors_only && !is_given(variables.get(kLog))) variables.set(kLog, "error");
  take_back_presets(variables);

  Environment environment = read_environment([&](const char* name) { return variables.get(name); });
  if (settings.print) environment.first_process = "1";  // the variable holds a shell's "$$"
  const RuleMistake mistake = decide(environment).mistakes.rule;
  if (mistake.why != RuleMistake::Why::kNone) {
    throw Refusal(kRefused, std::string(kProcessRules) + ": " +
                                text_of([&](Text& out) { put_rule_mistake(out, mistake); }));
  }
  const std::string_view rules = environment.rules == nullptr ? "" : environment.rules;
  if (rules.size() > kMaxRules) {
    throw Refusal(kRefused,
                  "all rules together are longer than " + std::to_string(kMaxRules) + " bytes");
  }
  environment.rules = nullptr;
  const Decision decision = decide(environment);
  const Mistakes& found = decision.mistakes;
  // What the program itself gets depends on its rules, and it may start others that get more.
  const bool more = decision.calls == Policy::kForceCpu && may_allow_cuda(rules);
  const Policy policy = more ? Policy::kValidate : decision.calls;
  if (settings.wants_fence() && policy != Policy::kForceCpu &&
      !(settings.wants_device_fence() && settings.gpus)) {
    refuse_fence(settings, policy);
  }
  if (found.list.why != ListError::Why::kNone) {
    refuse_list(settings, found.bad_list, found.list);
  }
  if (found.complaint_count > 0) refuse_complaint(settings, found.complaints[0]);
  // An inner run knows by the presets that there are rules, which it must keep.
  if (policy != Policy::kOff || !rules.empty()) {
    const bool without = policy == Policy::kForceCpu;
    set_presets(without && !settings.no_presets && !settings.no_gpu_presets, settings,
                outer_presets, variables);
  }
  if (!settings.no_presets) set_asan_option(variables);
  // Inside a run, the program that starts this one may have left them out on purpose.
  const std::string left_out =
      translate_visible_devices(settings, parse_allow_list(outer_list), gpus, variables);
  return {policy,
          std::string(decision.report),
          decision.log == Log::kOff,
          log_is_given && decision.log < Log::kDeny,
          inner ? "" : left_out,
          std::move(about_rules)};
}

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/commands/set_up.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "policy/decision.h"
#include "policy/device_list.h"
#include "policy/policies.h"
#include "policy/text.h"
#include "policy/variables.h"
#include "shim/launcher/elf/program.h"
#include "shim/launcher/fence/listed_gpus.h"
#include "shim/launcher/health/health.h"
#include "shim/launcher/message.h"
#include "shim/launcher/preload/check_report.h"
#include "shim/launcher/preload/given_rules.h"
#include "shim/launcher/preload/judge.h"
#include "shim/launcher/preload/machine_rules.h"
#include "shim/launcher/preload/preload.h"
#include "shim/launcher/preload/settings.h"

namespace cudaguard::launcher {

namespace {

constexpr const char* kPreload = "LD_PRELOAD";

/// True if the kernel is to enforce the list of GPUs.
bool fences_list(const GuardSettings& settings) {
  return settings.wants_device_fence() && settings.gpus;
}

/// Says what --fence=devices has led to.
void report_device_fence(const GuardSettings& settings, const Fence& fence, bool errors_only) {
  const bool required = settings.fence == FenceWish::kDevices;
  if (!fence.holds && required && !fences_list(settings)) {
    throw Refusal(kRefused, "--fence=devices: the fence cannot be set up: " + fence.why_not);
  }
  if (fence.devices) {
    if (errors_only) return;  // these are no errors
    warn(
        "--fence=devices: mount, bwrap, rootless Podman, io_uring, and gdb -p on outside "
        "processes also fail");
    if (!fence.split.empty()) {
      warn("--fence=devices: GPU device nodes are mounted below " +
           printable(joined(fence.split, ", ")) +
           "; new files directly in these directories cannot be opened");
    }
    return;
  }
  const std::string why = "the device nodes cannot be fenced: " + fence.why_no_devices;
  if (required) throw Refusal(kRefused, "--fence=devices: " + why);
  warn("--fence=devices,auto: " + why);
}

/// Replaces the list of --gpus with one that names the same GPUs.
void replace_list(const std::string& list, Variables& variables) {
  constexpr const char* kPresets = row_of(Variable::kPresets).name;
  constexpr const char* kVisible = row_of(Variable::kVisibleDevices).name;
  const char* presets = variables.get(kPresets);
  std::string names = presets == nullptr ? "" : presets;
  const std::string before = variables.get(kVisible);
  // The guard's messages then say that the option gave the list.
  if (names.ends_with(kGpusMark + before)) {
    variables.set(kPresets, names.replace(names.size() - before.size(), before.size(), list));
  }
  variables.set(kVisible, list);
}

/// Installs the fence that leaves the GPUs of --gpus. The guard's list becomes one that is right
/// inside. Throws Refusal if the list is wrong.
Fence fence_around_list(const GuardSettings& settings, Variables& variables) {
  const ListedGpus listed = find_listed_gpus(*settings.gpus);
  if (!listed.mistake.empty()) {
    throw Refusal(kRefused, "--gpus " + in_quotes(*settings.gpus) + ": " + listed.mistake);
  }
  if (!listed.why_not.empty()) {
    Fence fence;
    fence.holds = fence.was_there = is_fenced();
    fence.why_no_devices = listed.why_not;
    return fence;
  }
  Fence fence = put_up_fence_around(listed.nodes);
  // What --print shows is used outside of this fence, where the user's own list is right.
  if ((fence.devices || fence.narrowed) && !settings.print) replace_list(listed.list, variables);
  return fence;
}

/// Warns of a rule's indices: inside the fence, the driver numbers only the GPUs that are left, and
/// the guard cannot compare indices with the UUIDs that it gets as its list.
void warn_of_indices_in_rule(const Program& program, const Variables& variables) {
  Environment environment = read_environment([&](const char* name) { return variables.get(name); });
  environment.visible_devices = nullptr;  // what is left is a rule's
  const RuleAnswer answer = MachineRules().answer(started_here(program), environment);
  const AllowList list = parse_allow_list(answer.gpus);
  const bool indices =
      std::any_of(list.entries, list.entries + list.count,
                  [](const AllowEntry& entry) { return entry.kind == AllowEntry::Kind::kIndex; });
  if (!indices) return;
  warn("--fence=devices: GPUs have other numbers inside, so name them by UUID in gpus=" +
       in_quotes(answer.gpus));
}

/// Policies that allow CUDA get none under an earlier fence.
void warn_of_outer_fence(Policy policy) {
  warn("this process is already under a fence (cudaguard run --fence): policy " +
       std::string(name_of(policy)) + " gets no CUDA; run it outside of the fence");
}

/// What --if-healthy leads to.
struct AskedDriver {
  std::optional<HealthWish> wish;  ///< none: the driver was not asked
  Health health;
  GuardSettings settings;  ///< the user's, or those that follow from the driver's answer
};

/// Asks the driver if the user wants it. Throws Refusal if an unhealthy one forbids the start.
AskedDriver ask_driver(const Plan& plan, const Variables& variables) {
  AskedDriver driver = {health_wish(plan.settings, variables), {}, plan.settings};
  if (!driver.wish) return driver;
  // Refuses a program that does not exist before the driver is asked, which may take long.
  find_program(*plan.program, variables.get("PATH"));
  driver.health = check_health(*driver.wish, plan.settings.gpus, variables);
  driver.settings = settings_for(driver.health, *driver.wish, plan.settings);
  return driver;
}

/// Sets the guard's variables. What the user silences says nothing from then on.
GuardConfig configure(const GuardSettings& settings, Variables& variables) {
  GuardConfig config = settle(settings, variables, count_of_gpus());
  if (config.silent) silence_warnings();
  if (!config.left_out.empty()) warn(config.left_out);
  if (!config.errors_only) {
    for (const std::string& warning : config.about_rules) warn(warning);
  }
  return config;
}

struct InstalledFence {
  Fence fence;
  std::shared_ptr<Keeper> keeper;  ///< of its listener, if there is one
};

/// Installs the fence for --fence. Without --fence, warns if a fence already holds.
InstalledFence install_fence(const Plan& plan, const GuardConfig& config, Variables& variables) {
  const GuardSettings& settings = plan.settings;
  const Policy policy = config.policy;
  const bool verifies = plan.watch == Plan::Watch::kProcesses;
  InstalledFence installed;
  Fence& fence = installed.fence;
  if (fences_list(settings) && allows_cuda(policy)) {
    fence = fence_around_list(settings, variables);
    report_device_fence(settings, fence, config.errors_only);
    if (fence.holds) warn_of_outer_fence(policy);
  } else if (settings.wants_fence() || plan.only_listens) {
    const bool devices = settings.wants_device_fence();
    if (verifies) installed.keeper = std::make_shared<Keeper>();
    fence = plan.only_listens ? put_up_listener() : put_up_fence(verifies, devices);
    if (fence.listener >= 0) {
      installed.keeper->keep(fence.listener);
    } else {
      installed.keeper.reset();
    }
    if (!fence.holds && settings.fence == FenceWish::kRequire) {
      throw Refusal(kRefused, "--fence=require: the fence cannot be set up: " + fence.why_not);
    }
    if (devices) report_device_fence(settings, fence, config.errors_only);
    // A verdict has this reason.
    if (!fence.holds && !verifies) {
      warn("--fence: the fence cannot be set up: " + fence.why_not + "; only the guard is active");
    }
  } else {
    fence.holds = fence.was_there = is_fenced();
    fence.unseen = why_no_listener("--fence=off");
  }
  const bool allows = policy != Policy::kForceCpu && !settings.wants_fence();
  if (fence.holds && allows && !fences_list(settings)) warn_of_outer_fence(policy);
  // The commands that --print shows run outside of this process's new fence. Under verify, the
  // guard would advise to leave out an option that is not there.
  const bool is_under_fence = fence.was_there || !(settings.print || verifies);
  if (fence.holds && is_under_fence && policy == Policy::kForceCpu) mark_fenced(variables);
  return installed;
}

/// Returns the report that the program's processes will write, or "" if this user may not write
/// `wanted`. Throws Refusal if it cannot be one.
std::string choose_report(const Plan& plan, const std::string& wanted, const Program& program,
                          Variables& variables) {
  std::string report = wanted;
  ReportCheck check = {.strict = plan.strict, .copied = plan.watch != Plan::Watch::kNot};
  if (plan.settings.report) check.name = kReportOption;
  if (plan.settings.report == "-") {
    throw Refusal(kRefused, kReportOption + in_quotes("-") +
                                " is not accepted (accepted: a file (of that name: ./-), "
                                "DIRECTORY/" +
                                (check.copied ? "" : ", syslog:") + " or /dev/stderr)");
  }
  if (!check_report(report, check, program.files)) {
    variables.unset(row_of(Variable::kReport).name);
    report.clear();
  }
  check.name = "report=";
  if (plan.strict) {
    for (const std::string& one : reports_of(variables)) check_report(one, check, program.files);
  }
  return report;
}

/// Sets LD_PRELOAD. Throws Refusal if the program cannot be guarded and may not run unguarded.
Judged preload_guard(const Program& program, const Installation& installation, Policy policy,
                     const RunContext& context, Variables& variables) {
  const char* old_preload = variables.get(kPreload);
  const std::string before = old_preload == nullptr ? "" : old_preload;
  std::vector<std::string> own = {installation.guard};
  variables.set(kPreload, preload_list(before.c_str(), {}, own));
  if (program.path.empty()) return {};  // --print without a program
  Judged judged = judge(program, installation, variables, context);
  for (const std::string& file : preloaded_for(judged.linked, policy, installation)) {
    if (access(file.c_str(), R_OK) != 0) {
      throw Refusal(kRefused,
                    printable(file) + " is missing or cannot be read; install cudaguard again");
    }
    own.push_back(file);
  }
  if (!can_preload(own, context, judged)) own.clear();
  variables.set(kPreload, preload_list(before.c_str(), judged.sanitizers, own));
  return judged;
}

/// The program's words for execve.
Prepared with_arguments(Prepared prepared, char** words, bool by_shell) {
  if (by_shell) {
    // execve does not write to its arguments.
    prepared.by_shell = {const_cast<char*>(kShell), prepared.files.front().data()};
    for (char** word = words + 1; *word != nullptr; ++word) prepared.by_shell.push_back(*word);
    prepared.by_shell.push_back(nullptr);
  }
  while (*words != nullptr) prepared.arguments.push_back(*words++);
  prepared.arguments.push_back(nullptr);
  return prepared;
}

}  // namespace

Prepared set_up(const Plan& plan, Variables& variables) {
  const AskedDriver driver = ask_driver(plan, variables);
  const GuardConfig config = configure(driver.settings, variables);
  const auto [fence, keeper] = install_fence(plan, config, variables);

  const Installation installation = find_installation();
  Program program;
  if (*plan.program != nullptr) program = find_program(*plan.program, variables.get("PATH"));
  const std::string report = choose_report(plan, config.report, program, variables);
  if (driver.wish) {
    if (!driver.health.healthy) warn(health_warning(driver.health, *driver.wish));
    if (!report.empty()) record_health(driver.health, report, plan.program);
  }

  const bool listed = fences_list(driver.settings) && fence.devices;
  if (listed && !program.path.empty() && !config.errors_only) {
    warn_of_indices_in_rule(program, variables);
  }
  const Judged judged =
      preload_guard(program, installation, config.policy,
                    {.strict = plan.strict,
                     .fenced = fence.holds,
                     .records_ioctls = fence.listener >= 0 && fence.holds && fence.unseen.empty(),
                     .observed = plan.watch != Plan::Watch::kNot,
                     .verifies = plan.watch == Plan::Watch::kProcesses,
                     .fence_tried = plan.settings.wants_fence() || plan.only_listens,
                     .listed = listed,
                     .errors_only = config.errors_only},
                    variables);
  if (config.policy == Policy::kOff && !driver.settings.policy) {
    const bool ruled = has_rules(variables) || MachineRules().exist();
    warn(std::string("CUDAGUARD_POLICY=OFF in the environment: ") +
         (ruled ? "only rules apply" : "nothing is guarded") + " (--cpu overrides it)");
  }
  for (const std::string& warning : judged.warnings) warn(warning);
  for (const std::string& line : unknown_variables(variables)) warn(line);
  return with_arguments({.path = program.path,
                         .report = report,
                         .fence = fence,
                         .keeper = keeper,
                         .files = std::move(program.files),
                         .unguarded = judged.unguarded,
                         .grace = plan.grace},
                        plan.program, program.by_shell);
}

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/commands/set_up.h"

#include <unistd.h>

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
#include "shim/launcher/preload/preload.h"
#include "shim/launcher/preload/settings.h"

namespace cudaguard::launcher {

namespace {

constexpr const char* kPreload = "LD_PRELOAD";

/// Adds the files that a program linked to the driver needs after the guard.
void add_for_linked(const std::vector<std::string>& files, std::vector<std::string>& own) {
  for (const std::string& file : files) {
    if (access(file.c_str(), R_OK) != 0) {
      throw Refusal(kRefused,
                    printable(file) + " is missing or cannot be read; install cudaguard again");
    }
    own.push_back(file);
  }
}

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

/// Policies that allow CUDA get none under an earlier fence.
void warn_of_outer_fence(Policy policy) {
  warn("this process is already under a fence (cudaguard run --fence): policy " +
       std::string(name_of(policy)) + " gets no CUDA; run it outside of the fence");
}

/// Installs the fence for --fence. Without --fence, warns if a fence already holds. `keeper` gets
/// the listener, if there is one.
Fence fence_for(const Plan& plan, Policy policy, bool errors_only, Variables& variables,
                std::shared_ptr<Keeper>& keeper) {
  Fence fence;
  if (fences_list(plan.settings) && allows_cuda(policy)) {
    fence = fence_around_list(plan.settings, variables);
    report_device_fence(plan.settings, fence, errors_only);
    if (fence.holds) warn_of_outer_fence(policy);
  } else if (plan.settings.wants_fence()) {
    const bool devices = plan.settings.wants_device_fence();
    const bool listens = plan.watch == Plan::Watch::kProcesses;
    if (listens) keeper = std::make_shared<Keeper>();
    fence = put_up_fence(listens, devices);
    if (fence.listener >= 0) {
      keeper->keep(fence.listener);
    } else {
      keeper.reset();
    }
    if (!fence.holds && plan.settings.fence == FenceWish::kRequire) {
      throw Refusal(kRefused, "--fence=require: the fence cannot be set up: " + fence.why_not);
    }
    if (devices) report_device_fence(plan.settings, fence, errors_only);
    // A verdict has this reason.
    if (!fence.holds && plan.watch != Plan::Watch::kProcesses) {
      warn("--fence: the fence cannot be set up: " + fence.why_not + "; only the guard is active");
    }
  } else {
    fence.holds = fence.was_there = is_fenced();
    fence.unseen = why_no_listener("--fence=off");
    if (fence.holds && policy != Policy::kForceCpu) warn_of_outer_fence(policy);
  }
  // The commands that --print shows run outside of this process's new fence.
  const bool is_under_fence = fence.was_there || !plan.settings.print;
  if (fence.holds && is_under_fence && policy == Policy::kForceCpu) mark_fenced(variables);
  return fence;
}

}  // namespace

Prepared set_up(const Plan& plan, Variables& variables) {
  GuardSettings settings = plan.settings;
  const std::optional<HealthWish> wish = health_wish(settings, variables);
  Health health;
  if (wish) {
    // Refuses a program that does not exist before the driver is asked, which may take long.
    find_program(*plan.program, variables.get("PATH"));
    const char* list = settings.gpus ? settings.gpus->c_str()
                                     : variables.get(row_of(Variable::kVisibleDevices).name);
    health = check_health(*wish, list, variables);
    settings = settings_for(health, *wish, settings);
  }
  auto [policy, report, silent, errors_only, left_out] = settle(settings, variables);
  if (silent) silence_warnings();
  if (!left_out.empty()) warn(left_out);
  std::shared_ptr<Keeper> keeper;
  const Fence fence = fence_for(plan, policy, errors_only, variables, keeper);
  const Installation installation = find_installation();
  const char* old_preload = variables.get(kPreload);
  const std::string before = old_preload == nullptr ? "" : old_preload;
  std::vector<std::string> own = {installation.guard};

  Program program;
  Judged judged;
  if (*plan.program != nullptr) program = find_program(*plan.program, variables.get("PATH"));
  ReportCheck check = {.strict = plan.strict, .copied = plan.watch != Plan::Watch::kNot};
  if (settings.report) check.name = kReportOption;
  if (!check_report(report, check, program.files)) {
    variables.unset(row_of(Variable::kReport).name);
    report.clear();
  }
  check.name = "report=";
  if (plan.strict) {
    for (const std::string& one : reports_of(variables)) check_report(one, check, program.files);
  }
  if (wish && !health.healthy) warn(health_warning(health, *wish));
  if (wish && !report.empty()) record_health(health, report, plan.program);
  variables.set(kPreload, preload_list(before.c_str(), {}, own));
  if (*plan.program != nullptr) {
    const RunContext context = {plan.strict,
                                fence.holds,
                                fence.listener >= 0,
                                plan.watch != Plan::Watch::kNot,
                                settings.wants_fence(),
                                fences_list(settings) && fence.devices};
    judged = judge(program, installation, variables, context);
    add_for_linked(preloaded_for(judged.linked, policy, installation), own);
    if (!can_preload(own, context, judged)) own.clear();
    variables.set(kPreload, preload_list(before.c_str(), judged.sanitizers, own));
  }
  if (policy == Policy::kOff && !settings.policy) {
    warn("CUDAGUARD_POLICY=OFF in the environment: nothing is guarded (--cpu overrides it)");
  }
  for (const std::string& warning : judged.warnings) warn(warning);
  for (const std::string& line : unknown_variables(variables)) warn(line);
  Prepared prepared = {program.path, report, fence,           keeper, std::move(program.files),
                       {},           {},     judged.unguarded};
  prepared.grace = plan.grace;
  char** words = plan.program;
  if (program.by_shell) {
    // execve does not write to its arguments.
    prepared.by_shell = {const_cast<char*>(kShell), prepared.files.front().data()};
    for (char** word = words + 1; *word != nullptr; ++word) prepared.by_shell.push_back(*word);
    prepared.by_shell.push_back(nullptr);
  }
  while (*words != nullptr) prepared.arguments.push_back(*words++);
  prepared.arguments.push_back(nullptr);
  return prepared;
}

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cerrno>
#include <exception>

#include "policy/config.h"
#include "policy/text.h"
#include "policy/variables.h"
#include "shim/launcher/commands/commands.h"
#include "shim/launcher/elf/program.h"
#include "shim/launcher/health/health.h"
#include "shim/launcher/message.h"
#include "shim/launcher/observe/tree.h"
#include "shim/launcher/preload/judge.h"
#include "shim/launcher/preload/preload.h"
#include "shim/launcher/preload/report.h"
#include "shim/launcher/preload/settings.h"
#include "shim/launcher/print/print.h"

namespace cudaguard::launcher {

namespace {

constexpr const char* kPreload = "LD_PRELOAD";

/// Adds the libraries that a program linked to the driver needs after the guard.
void add_for_linked(const Judged& judged, Policy policy, const Installation& installation,
                    std::vector<std::string>& own) {
  if (policy == Policy::kOff) return;
  const bool cpu = policy == Policy::kForceCpu;
  const auto add = [&](const std::string& file) {
    if (access(file.c_str(), R_OK) != 0) {
      throw Refusal(kRefused,
                    printable(file) + " is missing or cannot be read; install cudaguard again");
    }
    own.push_back(file);
  };
  if (judged.linked_cuda) add(cpu ? installation.null_driver_cuda : installation.proxy_cuda);
  if (judged.linked_nvml) add(cpu ? installation.null_driver_nvml : installation.proxy_nvml);
}

/// Installs the fence for --fence. Without --fence, warns if a fence already holds.
Fence fence_for(const Options& options, Policy policy, Variables& variables) {
  const FenceWish wish = options.fence.value_or(FenceWish::kOff);
  Fence fence;
  if (wish != FenceWish::kOff) {
    fence = put_up_fence(options.observe);
    if (!fence.holds && wish == FenceWish::kRequire) {
      throw Refusal(kRefused, "--fence=require: the fence cannot be set up: " + fence.why_not);
    }
    // The report of verify has this reason.
    if (!fence.holds && options.command != Options::Command::kVerify) {
      warn("--fence: the fence cannot be set up: " + fence.why_not + "; only the guard is active");
    }
  } else {
    fence.holds = fence.was_there = is_fenced();
    if (fence.holds && policy != Policy::kForceCpu) {
      warn("this process is already under a fence (cudaguard run --fence): policy " +
           std::string(name_of(policy)) + " gets no CUDA; run it outside of the fence");
    }
  }
  // The commands that --print shows run outside of this process's new fence.
  const bool is_under_fence = fence.was_there || !options.print;
  if (fence.holds && is_under_fence && policy == Policy::kForceCpu) mark_fenced(variables);
  return fence;
}

/// Returns a clause if the program never asked for the GPU that it had for itself, while its
/// children were refused. Otherwise returns an empty string.
std::string idle_root(const Findings& findings, uint32_t pid, const char* name) {
  bool refused = false;
  for (const ObservedProcess& process : findings.processes) {
    if (!process.asked()) continue;
    if (process.pid == pid) return {};
    refused |= !process.refused.empty();
  }
  if (!refused) return {};
  return "the GPU was reserved for process " + std::to_string(pid) + " (" +
         printable(base_name(name)) + "), which did not ask for it";
}

/// run --observe: waits for the program and its descendants, prints which processes used CUDA, and
/// ends with the program's exit status.
[[noreturn]] void observe(Prepared& prepared, Variables& variables) {
  WatchedTree watched;
  try {
    watch_tree(prepared, variables, {}, watched);
    std::vector<std::string> doubts = watched.tree.doubts;
    const std::string& unheard = watched.tree.why_unheard;
    if (!unheard.empty()) doubts.insert(doubts.begin(), unheard);
    for (const std::string& doubt : doubts) print_message("--observe: " + printable(doubt));
    const bool alone = is_root(variables) && variables.has(row_of(Variable::kChildren).name);
    write_stderr(text_of_findings(
        watched.findings, watched.tree.left,
        alone ? idle_root(watched.findings, watched.pid, prepared.arguments[0]) : ""));
  } catch (const std::exception& error) {
    if (watched.pid == 0) throw;
    print_message(std::string("--observe: no summary: ") + error.what());
  }
  end_as(watched.status);
}

}  // namespace

Prepared prepare(const Options& given, Variables& variables) {
  Options options = given;
  const std::optional<HealthWish> wish = health_wish(given, variables);
  Health health;
  if (wish) {
    // Refuses a program that does not exist before the driver is asked, which may take long.
    find_program(*given.program, variables.get("PATH"));
    const char* list =
        given.gpus ? given.gpus->c_str() : variables.get(row_of(Variable::kVisibleDevices).name);
    health = check_health(*wish, list, variables);
    options = options_for(health, *wish, options);
  }
  const Config config = settle(options, variables);
  const Policy policy = config.policy;
  std::string report(config.report);
  if (config.log == Log::kOff) silence_warnings();
  const Fence fence = fence_for(options, policy, variables);
  const Installation installation = find_installation();
  const char* old_preload = variables.get(kPreload);
  const std::string before = old_preload == nullptr ? "" : old_preload;
  std::vector<std::string> own = {installation.guard};

  Program program;
  Judged judged;
  if (*options.program != nullptr) program = find_program(*options.program, variables.get("PATH"));
  if (!check_report(report, {options.report.has_value(), options.strict}, program.files)) {
    variables.unset(row_of(Variable::kReport).name);
    report.clear();
  }
  if (wish && !health.healthy) warn(health_warning(health, *wish));
  if (wish && !report.empty()) {
    record_health(health, report_path(report, getpid()), options.program);
  }
  variables.set(kPreload, preload_list(before.c_str(), {}, own));
  if (*options.program != nullptr) {
    const RunContext context = {options.strict, fence.holds, fence.listener >= 0, options.observe,
                                options.fence.value_or(FenceWish::kOff) != FenceWish::kOff};
    judged = judge(program, installation, variables, context);
    add_for_linked(judged, policy, installation, own);
    if (!can_preload(own, context, judged)) own.clear();
    variables.set(kPreload, preload_list(before.c_str(), judged.sanitizers, own));
  }
  if (policy == Policy::kOff && !options.policy) {
    warn("CUDAGUARD_POLICY=OFF in the environment: nothing is guarded (--cpu overrides it)");
  }
  for (const std::string& warning : judged.warnings) warn(warning);
  for (const std::string& line : unknown_variables(variables)) warn(line);
  Prepared prepared = {program.path, report, fence, std::move(program.files), {}};
  char** words = options.program;
  if (program.by_shell) {
    prepared.path = kShell;
    // execve does not write to its arguments.
    prepared.arguments = {const_cast<char*>(kShell), prepared.files.front().data()};
    ++words;
  }
  while (*words != nullptr) prepared.arguments.push_back(*words++);
  prepared.arguments.push_back(nullptr);
  return prepared;
}

int run(const Options& options, const char* const* environment) {
  Variables variables(environment);
  Prepared prepared = prepare(options, variables);
  if (options.print) {
    print(variables.changes());
    const Fence& fence = prepared.fence;
    if (fence.holds && !fence.was_there) {
      print(std::string("# --fence is not among these: only cudaguard run sets it up") +
            (fence.no_new_privs
                 ? ", and sets no_new_privs:\n# sudo and setuid programs inside gain no rights"
                 : "") +
            "\n");
    }
    return 0;
  }
  if (options.observe) observe(prepared, variables);
  execve(prepared.path.c_str(), prepared.arguments.data(), variables.pointers().data());
  throw cannot_start(prepared.path, errno);
}

}  // namespace cudaguard::launcher

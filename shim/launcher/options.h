// SPDX-License-Identifier: Apache-2.0
// The command line. Options end at the first word that is not one, as with env and timeout.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "policy/library.h"
#include "policy/text.h"
#include "policy/variables.h"

namespace cudaguard::launcher {

/// The value of --fence. kDevices requires both fences. kDevicesAuto starts the program without
/// what cannot be set up.
enum class FenceWish { kOff, kAuto, kRequire, kDevices, kDevicesAuto };

/// The word of CUDAGUARD_POLICY that only the launcher accepts.
inline constexpr char kIfHealthy[] = "IF_HEALTHY";

/// The value of --if-healthy: "10,require,fresh".
struct HealthWish {
  std::chrono::milliseconds limit{10000};  ///< for the driver's answer
  bool require = false;                    ///< refuse to start if the driver is not healthy
  bool fresh = false;                      ///< do not use an earlier answer
  std::string name = "--if-healthy";       ///< what asked for it, for messages
};

/// The words of --deny, in the order of DriverApi.
inline constexpr char kDeniedWords[] = "init, nvml, opencl, context";
inline std::string_view denied_word_of(DriverApi api) {
  return word_at(kDeniedWords, static_cast<size_t>(api));
}

/// What the guard does in the program. `run` takes it from its options, `verify` chooses it.
struct GuardSettings {
  bool cpu = false;
  std::optional<std::string> gpus;
  std::optional<std::string> policy;
  std::optional<std::string> children;
  std::optional<std::string> log;
  std::optional<std::string> report;
  std::optional<FenceWish> fence;
  std::optional<HealthWish> if_healthy;
  std::vector<std::string> rules;  ///< policies by program
  bool no_presets = false;
  bool no_gpu_presets = false;  ///< the programs must ask for CUDA as they do without cudaguard
  bool unhealthy = false;       ///< --if-healthy has found that the driver does not work
  bool print = false;
  bool observe = false;      ///< allow CUDA, unless another setting forbids it
  bool errors_only = false;  ///< print no more by default, because the launcher lists the attempts
  bool wants_fence() const { return fence.value_or(FenceWish::kOff) != FenceWish::kOff; }
  bool wants_device_fence() const {
    return fence == FenceWish::kDevices || fence == FenceWish::kDevicesAuto;
  }
};

/// The words of a command line.
struct Options : GuardSettings {
  enum class Command { kRun, kVerify, kReport, kDoctor, kSystem, kHelp, kVersion };
  Command command = Command::kHelp;
  Command help_of = Command::kHelp;  ///< which page to print; kHelp: the list of the commands
  bool strict = false;               ///< for run and verify
  // For verify, report and doctor: files for the result.
  std::optional<std::string> json_file;
  std::optional<std::string> html_file;
  std::optional<std::string> junit_file;
  std::optional<std::string> prometheus_file;
  bool force = false;  ///< overwrite files that cudaguard has not written
  // For verify.
  std::vector<std::string> allow;  ///< patterns of processes and code that may ask for CUDA
  std::vector<std::string> deny;   ///< attempts that fail the run: init (the default), nvml, …
  bool allow_incomplete = false;   ///< pass although attempts may be missing
  bool gpu = false;                ///< for doctor: ask the driver alone
  // For report.
  std::optional<std::string> by;     ///< exe, user, host, job, rule, line, or two of these
  std::optional<std::string> since;  ///< 7d, 12h, 30m, 2026-11-27
  // For system.
  enum class Action { kEnable, kDisable, kStatus, kCheck };
  Action action = Action::kEnable;
  std::optional<std::string> system_directory;  ///< the directory of the system to change
  bool dry_run = false;                         ///< write nothing
  std::optional<std::string> spool;             ///< a directory for records; "": the usual one
  // For system check: the process for which to ask.
  std::optional<std::string> asked_program;
  std::optional<std::string> asked_args;
  std::optional<std::string> asked_user;
  std::vector<std::string> asked_groups;
  std::optional<std::string> asked_cgroup;
  /// The program and its arguments: a part of argv, null-terminated. May be empty with --print and
  /// for doctor, which takes no arguments. For report, the files and directories to read. For
  /// system, the guard (for check, a file of rules), or nothing.
  char** program = nullptr;
  // For run and verify.
  std::optional<std::string> grace;  ///< seconds to wait for the processes that are left running
};

/// One row for each option. Its line in --help, docs/cli.md, the manual and the completion come
/// from here: scripts/generate-options writes them. If a command needs another help or default, the
/// option has a second row. If the row names a variable, `run` sets it, and nothing else is needed.
/// Otherwise, use the member: options of run and verify go into the Plan (commands/plan.cpp), which
/// carry_out() follows, and what changes the environment into preload/settings.cpp.
struct OptionRow {
  const char* name;
  const char* commands;         ///< that take it: "verify,report"
  const char* value = "";       ///< its name in the help: "FILE"; "[=S]": optional; "": a flag
  const char* help;             ///< one line; if it ends in ":", the words follow
  const char* words = "";       ///< that the completion offers: "auto, require, off"
  const char* by_default = "";  ///< the value without the option; "": the help need not name it
  std::optional<Variable> sets = {};  ///< `run` sets this variable to the value
  /// A flag takes no value, and a list may be repeated.
  std::variant<bool Options::*, std::optional<std::string> Options::*,
               std::vector<std::string> Options::*, std::optional<FenceWish> Options::*,
               std::optional<HealthWish> Options::*>
      to;
};

/// In the order of the help pages.
inline constexpr OptionRow kOptions[] = {
    {.name = "cpu",
     .commands = "run",
     .help = "hide all CUDA devices",
     .by_default = "on, unless another option or a variable allows CUDA",
     .to = &Options::cpu},
    {.name = "gpus",
     .commands = "run",
     .value = "LIST",
     .help = "show only these GPUs, by index (2,5) or UUID (GPU-..., MIG-...)",
     .by_default = "none",
     .sets = Variable::kVisibleDevices,
     .to = &Options::gpus},
    {.name = "policy",
     .commands = "run",
     .value = "POLICY",
     .help = "set the CUDA policy:",
     .words = row_of(Variable::kPolicy).accepted,
     .by_default = "FORCE_CPU",
     .sets = Variable::kPolicy,
     .to = &Options::policy},
    {.name = "if-healthy",
     .commands = "run",
     .value = "[=S]",
     .help = "use CUDA only if the driver answers within S seconds",
     .by_default = "10",
     .to = &Options::if_healthy},
    {.name = "children",
     .commands = "run",
     .value = "WHO",
     .help = "allow CUDA only in PROGRAM (cpu, query) or its descendants (gpu, contexts); "
             "query and contexts let the rest query GPUs",
     .words = "cpu, gpu, query, contexts",
     .by_default = "no limit",
     .sets = Variable::kChildren,
     .to = &Options::children},
    {.name = "rule",
     .commands = "run",
     .value = "RULE",
     .help = "set the policy of some programs, for example VALIDATE program=worker*",
     .by_default = "none",
     .to = &Options::rules},
    {.name = "log",
     .commands = "run",
     .value = "LEVEL",
     .help = "choose the messages on stderr:",
     .words = row_of(Variable::kLog).accepted,
     .by_default = "deny",
     .sets = Variable::kLog,
     .to = &Options::log},
    {.name = "report",
     .commands = "run",
     .value = "FILE",
     .help = "append records; FILE can contain %p (process id), %h (host name), %u (user id)",
     .by_default = "none",
     .sets = Variable::kReport,
     .to = &Options::report},
    {.name = "fence",
     .commands = "run",
     .value = "[=MODE]",
     .help = "make the kernel refuse NVIDIA ioctls (in mode devices, also GPU nodes); MODE:",
     .words = "auto, require, devices, off",
     .by_default = "off; --fence alone: auto",
     .to = &Options::fence},
    {.name = "observe",
     .commands = "run",
     .help = "allow CUDA, except with --cpu or --fence; list the processes that asked for it",
     .to = &Options::observe},
    {.name = "no-presets",
     .commands = "run",
     .help = "do not set the presets",
     .to = &Options::no_presets},
    {.name = "print",
     .commands = "run",
     .help = "print the variables as shell commands, and start nothing",
     .to = &Options::print},
    {.name = "strict",
     .commands = "run",
     .help = "refuse a program that is static or cannot be checked",
     .to = &Options::strict},
    {.name = "allow",
     .commands = "verify",
     .value = "PATTERN",
     .help = "accept what PATTERN matches: a command, lib:X, module:X, line:FILE:LINE or program:X",
     .words = "lib:, module:, line:, program:",
     .by_default = "none",
     .to = &Options::allow},
    {.name = "allow-incomplete",
     .commands = "verify",
     .help = "end with PASS instead of INCOMPLETE, unless --strict is the reason",
     .to = &Options::allow_incomplete},
    {.name = "strict",
     .commands = "verify",
     .help = "end with INCOMPLETE if any program is not guarded",
     .to = &Options::strict},
    {.name = "deny",
     .commands = "verify",
     .value = "WHAT",
     .help = "choose what fails the run: init (CUDA), nvml, opencl or context (queries pass)",
     .words = kDeniedWords,
     .by_default = "init",
     .to = &Options::deny},
    {.name = "report",
     .commands = "verify",
     .value = "FILE",
     .help = "also append the records to FILE",
     .by_default = "none",
     .to = &Options::report},
    {.name = "fence",
     .commands = "verify",
     .value = "[=MODE]",
     .help = "also refuse NVIDIA ioctls (in mode devices, also GPU nodes); MODE:",
     .words = "auto, require, devices, off",
     .by_default = "auto",
     .to = &Options::fence},
    {.name = "grace",
     .commands = "run",
     .value = "S",
     .help = "with --observe, wait at most S seconds for processes that PROGRAM leaves running",
     .by_default = "no limit",
     .to = &Options::grace},
    {.name = "grace",
     .commands = "verify",
     .value = "S",
     .help = "wait at most S seconds for processes that PROGRAM leaves running",
     .by_default = "no limit",
     .to = &Options::grace},
    {.name = "by",
     .commands = "report",
     .value = "WHAT",
     .help =
         "print a row for each exe, user, host, job, rule or line, or each pair, such as job,line",
     .words = "exe, user, host, job, rule, line",
     .by_default = "none",
     .to = &Options::by},
    {.name = "since",
     .commands = "report",
     .value = "TIME",
     .help = "leave out records older than TIME: 7d, 12h, 30m, or a date (2026-11-27)",
     .by_default = "none",
     .to = &Options::since},
    {.name = "gpu",
     .commands = "doctor",
     .help = "check only the driver; the exit code is 1 if it is not healthy",
     .to = &Options::gpu},
    {.name = "root",
     .commands = "system",
     .value = "DIR",
     .help = "change the system in DIR, such as an image or a mounted disk",
     .by_default = "/",
     .to = &Options::system_directory},
    {.name = "spool",
     .commands = "system",
     .value = "[=DIR]",
     .help = "with enable, create DIR for all users' records",
     // Administrators look for records among the logs, and keep them for some time.
     .by_default = "/var/log/cudaguard",
     .to = &Options::spool},
    {.name = "dry-run",
     .commands = "system",
     .help = "check and test everything, but write nothing",
     .to = &Options::dry_run},
    {.name = "program",
     .commands = "system",
     .value = "PATH",
     .help = "with check, print the policy of PATH",
     .by_default = "none",
     .to = &Options::asked_program},
    {.name = "args",
     .commands = "system",
     .value = "WORDS",
     .help = "with check, the program's command line",
     .by_default = "not known",
     .to = &Options::asked_args},
    {.name = "user",
     .commands = "system",
     .value = "NAME",
     .help = "with check, the program's user; the user's groups come from /etc/group",
     .by_default = "not known",
     .to = &Options::asked_user},
    {.name = "group",
     .commands = "system",
     .value = "NAME",
     .help = "with check, an additional group of the program",
     .by_default = "not known",
     .to = &Options::asked_groups},
    {.name = "cgroup",
     .commands = "system",
     .value = "CGROUP",
     .help = "with check, the program's cgroup, as in /proc/self/cgroup",
     .by_default = "not known",
     .to = &Options::asked_cgroup},
    {.name = "json",
     .commands = "verify,report,doctor",
     .value = "FILE",
     .help = "write JSON; - means standard output",
     .by_default = "none",
     .to = &Options::json_file},
    {.name = "junit",
     .commands = "verify",
     .value = "FILE",
     .help = "write JUnit XML",
     .by_default = "none",
     .to = &Options::junit_file},
    {.name = "html",
     .commands = "verify,report",
     .value = "FILE",
     .help = "write one HTML page",
     .by_default = "none",
     .to = &Options::html_file},
    {.name = "prometheus",
     .commands = "report",
     .value = "FILE",
     .help = "write counts for Prometheus' node_exporter",
     .by_default = "none",
     .to = &Options::prometheus_file},
    {.name = "force",
     .commands = "verify,report,doctor",
     .help = "overwrite FILE even if cudaguard did not write it",
     .to = &Options::force},
};

/// A command and its help page.
struct Page {
  Options::Command command;
  const char* name;
  const char* words;    ///< the words after the command in the usage line
  const char* about;    ///< for the list of commands
  const char* summary;  ///< one sentence
  const char* notes;    ///< the end of the page
};

/// In the order of Options::Command.
std::span<const Page> pages();
std::vector<const OptionRow*> options_of(const Page& page);
/// The help, with the words after a ":" at its end.
std::string about(std::string help, const char* words);
inline std::string about(const OptionRow& option) { return about(option.help, option.words); }

/// 1 to 3600 in decimal digits; 0 if the text is anything else.
uint32_t seconds_of(std::string_view text);

/// The value that was given for an option that sets a variable.
const std::optional<std::string>& value_of(const OptionRow& option, const GuardSettings& settings);
/// The name of the option that sets the variable, if it was given: "gpus"; otherwise empty.
std::string_view option_for(Variable variable, const GuardSettings& settings);

/// Returns kHelp if there is no word. Throws Refusal for everything that it does not understand.
Options parse_options(int argc, char** argv);

/// Returns the command's own page; for kHelp, the list of commands.
std::string help_text(Options::Command command);

}  // namespace cudaguard::launcher

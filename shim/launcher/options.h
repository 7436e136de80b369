// SPDX-License-Identifier: Apache-2.0
// The command line. Options end at the first word that is not one, as with env and timeout.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "policy/variables.h"

namespace cudaguard::launcher {

/// The value of --fence.
enum class FenceWish { kOff, kAuto, kRequire };

/// The value of --if-healthy: "10,require,fresh".
struct HealthWish {
  std::chrono::milliseconds limit{10000};  ///< for the driver's answer
  bool require = false;                    ///< refuse to start if the driver is not healthy
  bool fresh = false;                      ///< do not use an earlier answer
  bool by_variable = false;                ///< CUDAGUARD_POLICY=IF_HEALTHY asked for it
};

struct Options {
  enum class Command { kRun, kVerify, kReport, kDoctor, kHelp, kVersion };
  Command command = Command::kHelp;
  Command help_of = Command::kHelp;  ///< which page to print; kHelp: the list of the commands
  bool cpu = false;
  std::optional<std::string> gpus;
  std::optional<std::string> policy;
  std::optional<std::string> children;
  std::optional<std::string> log;
  std::optional<std::string> report;
  std::optional<FenceWish> fence;  ///< for run and verify
  std::optional<HealthWish> if_healthy;
  bool no_presets = false;
  bool print = false;
  bool strict = false;
  bool observe = false;
  // For verify, report and doctor: files for the result.
  std::optional<std::string> json_file;
  std::optional<std::string> html_file;
  std::optional<std::string> junit_file;
  bool force = false;  ///< overwrite files that cudaguard has not written
  // For verify.
  std::vector<std::string> allow;  ///< patterns of processes and code that may touch CUDA
  std::vector<std::string> deny;   ///< attempts that fail the run: init (the default), nvml, opencl
  bool allow_incomplete = false;   ///< pass although attempts may be missing
  bool trace = false;              ///< examine every exec (ptrace)
  bool gpu = false;                ///< for doctor: ask the driver alone
  // For report.
  std::optional<std::string> by;  ///< exe, user, host, job, line
  /// The program and its arguments: a part of argv, null-terminated. May be empty with --print and
  /// for doctor, which takes no arguments. For report, the files and directories to read.
  char** program = nullptr;
};

/// 1 to 3600 in decimal digits; 0 if the text is anything else.
uint32_t seconds_of(std::string_view text);

/// The name of the option that sets the variable, if it was given: "gpus"; otherwise empty.
std::string_view option_for(Variable variable, const Options& options);

/// Returns kHelp if there is no word. Throws Refusal for everything that it does not understand.
Options parse_options(int argc, char** argv);

/// Returns the command's own page; for kHelp, the list of commands.
std::string help_text(Options::Command command);

}  // namespace cudaguard::launcher

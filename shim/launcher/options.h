// SPDX-License-Identifier: Apache-2.0
// The command line. Options end at the first word that is not one, as with env and timeout.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "policy/variables.h"

namespace cudaguard::launcher {

struct Options {
  enum class Command { kRun, kDoctor, kVerify, kReport, kHelp, kVersion };
  Command command = Command::kRun;
  Command help_of = Command::kRun;  ///< for kHelp
  bool cpu = false;
  std::optional<std::string> gpus;
  std::optional<std::string> policy;
  std::optional<std::string> children;
  std::optional<std::string> log;
  std::optional<std::string> report;
  std::optional<std::string> fence;  ///< auto, require, off; of run and verify
  bool no_presets = false;
  bool print = false;
  bool strict = false;
  bool observe = false;
  bool json = false;  ///< of doctor and report: print JSON
  // Of verify.
  std::vector<std::string> allow;        ///< patterns of commands that may touch CUDA
  std::vector<std::string> deny;         ///< what fails: init (the default), nvml, opencl
  bool trace = false;                    ///< look at every exec (ptrace)
  std::optional<std::string> json_file;  ///< --json FILE
  std::optional<std::string> junit_file;
  std::optional<std::string> html_file;  ///< of report too: --html is a file there as well
  // Of report.
  std::optional<std::string> by;    ///< exe, user, host, job, line
  std::vector<std::string> inputs;  ///< files and folders
  /// The program and its arguments: a part of argv, null-terminated; may be empty with --print and
  /// for doctor, which takes no arguments; of report what is to be read.
  char** program = nullptr;
};

/// The options with a value: each sets a variable.
struct ValueOption {
  const char* flag;
  std::optional<std::string> Options::*value;
  Variable sets;
  const char* kind;  ///< of value, for --help
  const char* about;
};
inline constexpr ValueOption kValueOptions[] = {
    {"--gpus", &Options::gpus, Variable::kVisibleDevices, "LIST",
     "it finds these GPUs and no others: 2,5 or GPU-... or MIG-..."},
    {"--policy", &Options::policy, Variable::kPolicy, "P",
     "FORCE_CPU, VALIDATE (a wrong index is explained), CLAMP, OFF"},
    {"--children", &Options::children, Variable::kChildren, "cpu",
     "processes that it starts find no CUDA device"},
    {"--log", &Options::log, Variable::kLog, "L",
     "lines on stderr: off, error, deny (the default), all"},
    {"--report", &Options::report, Variable::kReport, "FILE",
     "append JSON Lines records to FILE; %p: process id"},
};

/// Throws Refusal for everything that is not understood.
Options parse_options(int argc, char** argv);

/// Of verify or report alone; else of all, with run's options and doctor's.
std::string help_text(Options::Command command);

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
// The command line. Options end at the first word that is not one, as with env and timeout.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace cudaguard::launcher {

struct Options {
  enum class Command { kRun, kDoctor, kHelp, kVersion };
  Command command = Command::kRun;
  bool cpu = false;
  std::optional<std::string> gpus;
  std::optional<std::string> policy;
  std::optional<std::string> children;
  std::optional<std::string> log;
  std::optional<std::string> report;
  bool no_presets = false;
  bool print = false;
  bool strict = false;
  bool observe = false;
  bool json = false;  ///< of doctor
  /// The program and its arguments: a part of argv, null-terminated; may be empty with --print and
  /// for doctor, which takes no arguments.
  char** program = nullptr;
};

/// Throws Refusal for everything that is not understood.
Options parse_options(int argc, char** argv);

std::string help_text();

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
// What doctor has to say in whole sentences.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "policy/config.h"
#include "shim/launcher/child/variables.h"
#include "shim/launcher/doctor/ask_driver.h"
#include "shim/launcher/doctor/kernel.h"
#include "shim/launcher/doctor/libraries.h"
#include "shim/launcher/doctor/own_version.h"
#include "shim/launcher/preload/installation.h"

namespace cudaguard::launcher {

struct Findings {
  std::vector<std::string> problems;  ///< each with its remedy, where there is one
  std::vector<std::string> notes;
};

/// Everything that was looked at.
struct MachineFacts {
  MachineFacts(const Installation& installed, const Variables& given)
      : installation(installed), variables(given) {}
  const Installation& installation;
  const Variables& variables;
  std::vector<std::string> missing_files;  ///< of the installation
  OwnVersion guard;                        ///< the file's own word
  Libraries libraries;
  KernelFacts kernel;
  DriverAnswer answer;  ///< in this environment
  /// The same where nobody chose some of the GPUs; nothing: nobody did.
  std::optional<DriverAnswer> with_every_gpu;
  std::optional<std::vector<Gpu>> gpus;  ///< the machine's, whatever CUDA_VISIBLE_DEVICES says
  /// The variables that matter here, those that are set.
  std::vector<std::pair<std::string, std::string>> environment;
  std::string guarded_by;  ///< is doctor itself: "LD_PRELOAD", "/etc/ld.so.preload"
};

/// What the guard makes of this environment; its strings are `variables`' own.
Config config_of(const Variables& variables);

/// Driver libraries, kernel, cuInit.
void judge_machine(const MachineFacts& facts, Findings& findings);

/// CUDA_*, CUDAGUARD_*, LD_*.
void judge_environment(const MachineFacts& facts, Findings& findings);

}  // namespace cudaguard::launcher

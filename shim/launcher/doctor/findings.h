// SPDX-License-Identifier: Apache-2.0
// What doctor has to say of the machine in whole sentences.
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
#include "shim/launcher/doctor/own_files.h"
#include "shim/launcher/fence/fence.h"
#include "shim/launcher/preload/installation.h"

namespace cudaguard::launcher {

struct MachineFindings {
  std::vector<std::string> problems;  ///< each with its remedy, where there is one
  std::vector<std::string> notes;

  void problem(std::string sentence) { problems.push_back(std::move(sentence)); }
  void note(std::string sentence) { notes.push_back(std::move(sentence)); }
};

/// Everything that was looked at.
struct MachineFacts {
  const Installation& installation;
  const Variables& variables;
  const Fence& fence;  ///< what can be had here, or stands here
  std::vector<OwnFile> own_files;
  Libraries libraries;
  KernelFacts kernel;
  DriverAnswer answer;  ///< in this environment
  /// The same where nobody chose some of the GPUs; nothing: nobody did.
  std::optional<DriverAnswer> with_every_gpu;
  Gpus gpus;  ///< the machine's, whatever CUDA_VISIBLE_DEVICES says
};

inline constexpr int kNoDevice = 100;  // CUDA_ERROR_NO_DEVICE

/// What the guard makes of this environment; its strings are `variables`' own.
Config config_of(const Variables& variables);

/// Driver libraries, kernel, cuInit.
void judge_machine(const MachineFacts& facts, MachineFindings& findings);

/// CUDA_*, CUDAGUARD_*, LD_*.
void judge_environment(const MachineFacts& facts, MachineFindings& findings);

}  // namespace cudaguard::launcher

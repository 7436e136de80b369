// SPDX-License-Identifier: Apache-2.0
// The machine's half of doctor: driver libraries, device nodes, kernel module, what cuInit says,
// the environment's mistakes. Starts nothing of the user's; makes no device node.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "shim/launcher/child/variables.h"
#include "shim/launcher/preload/installation.h"

namespace cudaguard::launcher {

struct MachineReport {
  nlohmann::ordered_json json;        ///< "machine" of doctor.schema.json
  std::string text;                   ///< lines, each with its end
  std::vector<std::string> problems;  ///< sentences; not empty: exit code 1
};

MachineReport examine_machine(const Installation& installation, const Variables& variables);

}  // namespace cudaguard::launcher

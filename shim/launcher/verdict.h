// SPDX-License-Identifier: Apache-2.0
// Will the guard hold in this program? Asked before it is started.
#pragma once

#include <string>
#include <vector>

#include "shim/launcher/installation.h"
#include "shim/launcher/program.h"
#include "shim/launcher/variables.h"

namespace cudaguard::launcher {

/// What the program's own ld.so says.
struct Verdict {
  bool linked_cuda = false;  ///< to libcuda.so.1, itself or through a library
  bool linked_nvml = false;
  std::vector<std::string> sanitizers;  ///< full paths of runtimes that must come first
  std::vector<std::string> warnings;
};

/// Throws Refusal for what can never be guarded. `variables`: with the guard in LD_PRELOAD.
Verdict judge(const Program& program, const Installation& installation, const Variables& variables,
              bool strict);

}  // namespace cudaguard::launcher

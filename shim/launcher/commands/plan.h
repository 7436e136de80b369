// SPDX-License-Identifier: Apache-2.0
// What to do with a program. `run` and `verify` each make a plan of their options, and carry_out()
// does what it says.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "policy/driver_api.h"
#include "shim/launcher/options.h"

namespace cudaguard::launcher {

/// The result files that the user asked for.
struct ResultFiles {
  std::optional<std::string> json;
  std::optional<std::string> junit;
  std::optional<std::string> html;
  bool force = false;  ///< overwrite files that cudaguard has not written
};

struct Plan {
  char** program = nullptr;  ///< with its arguments, null-terminated; may be empty with --print

  // What to guard.
  GuardSettings settings;
  bool strict = false;  ///< refuse what is not guarded

  // How to watch.
  enum class Watch : uint8_t {
    kNot,        ///< become the program
    kAttempts,   ///< wait for all its processes, and list those that asked for CUDA
    kProcesses,  ///< also find the unguarded ones, and decide
  };
  Watch watch = Watch::kNot;
  bool only_listens = false;  ///< for kProcesses, without a fence: queries reach the driver
  std::optional<std::chrono::milliseconds> grace;  ///< how long to wait after the program's end

  // What the result is, and where it goes. For kProcesses.
  std::vector<std::string> allow;
  std::set<DriverApi> deny;
  bool allow_incomplete = false;
  bool strict_result = false;  ///< no program of the tree may be unguarded
  ResultFiles files;
};

/// Allows CUDA only if the options say so. Throws Refusal for a wrong value of --grace.
Plan plan_of_run(const Options& options);

/// FORCE_CPU in every process, and no presets that hide GPUs. With CUDA_VISIBLE_DEVICES="" a
/// framework might not call the driver at all, and pass here but not with the variable unset.
/// With --deny=context, it is NO_CONTEXT: only then does a program get as far as to a context.
/// Throws Refusal for wrong values of --allow, --deny and --grace.
Plan plan_of_verify(const Options& options);

}  // namespace cudaguard::launcher

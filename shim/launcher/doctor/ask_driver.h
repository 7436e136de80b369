// SPDX-License-Identifier: Apache-2.0
// What cuInit says: asked in a child, for a sick driver hangs or crashes, and as root a healthy one
// makes device nodes.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "shim/launcher/child/variables.h"
#include "shim/launcher/doctor/rows.h"

namespace cudaguard::launcher {

struct Gpu {
  std::string uuid;  ///< "GPU-...", "MIG-..."; empty: not known
  std::string name;  ///< likewise
};
using Gpus = std::optional<std::vector<Gpu>>;

struct DriverAnswer {
  enum class Outcome {
    kFailed,  ///< the probe did not come to ask
    kNotTried,
    kAnswer,
    kSignal,
    kHang,
  };
  Outcome outcome = Outcome::kNotTried;
  std::string reason;  ///< of kNotTried and kFailed: a clause
  std::string where;   ///< of kSignal and kHang: "in cuInit"
  int stuck = 0;       ///< the child, where it does not die of SIGKILL
  std::optional<int> code;
  std::string name;  ///< CUDA_ERROR_NO_DEVICE; empty: a code that CUDA does not have
  std::string text;
  std::optional<int> milliseconds;  ///< that cuInit took, or that it was waited for
  std::string signal;               ///< "SIGSEGV"
  std::optional<int> version;       ///< 12020 is CUDA 12.2
  Gpus gpus;
};

/// Starts the probe in this environment, but without LD_PRELOAD and the guard's variables, and
/// behind forbid_changes(). Comes back when the time is over, even where the child cannot be
/// killed.
DriverAnswer ask_driver(const std::string& probe, Variables variables, std::chrono::seconds limit);

/// `gpus`: the machine's, whatever CUDA_VISIBLE_DEVICES says.
Rows rows_of(const DriverAnswer& answer, const Gpus& gpus);

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
// The state of explain/ (see shim/guard/state/process.h).
#pragma once

#include <atomic>
#include <cstdint>

#include "policy/selection.h"
#include "shim/guard/record/state.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// The GPUs that a program's devices 0 to count-1 are.
struct VisibleGpus {
  VisibleDevice devices[kMostGpus];
  uint16_t count = 0;  ///< 0: not known
  /// True if the devices are named by the numbers in CUDA_VISIBLE_DEVICES (CUDA's order), otherwise
  /// by NVML's indices (PCI order).
  bool by_variable = false;
};

/// The value of CUDA_VISIBLE_DEVICES when something happened for the first time.
struct Moment {
  std::atomic<int> state{0};  ///< 0: it has not happened, 1: being written, 2: it has happened
  char api[48] = {};          ///< the function that was called
  unsigned count = 0;         ///< the number of GPUs that was reported to the program
  bool set = false;
  char by[kMostSite] = {};  ///< the call site
  char value[256] = {};     ///< may be cut, so values that differ only later count as equal
};

struct ExplainProcess {
  std::atomic<bool> fork_checked{false};
  std::atomic<bool> visible_known{false};
  Moment counted;
  Moment initialised;
  VisibleGpus visible;
};

/// The process and the call site that have initialised CUDA.
struct ExplainInherited {
  std::atomic<uint32_t> pid{0};
  uint64_t at = 0;  ///< milliseconds since 1970
  char by[kMostSite] = {};
};

}  // namespace cudaguard

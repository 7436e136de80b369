// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "policy/selection.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// What a program's devices 0 to count-1 are.
struct VisibleGpus {
  VisibleDevice devices[kMostGpus];
  uint16_t count = 0;  ///< 0: not known
  /// By the numbers in CUDA_VISIBLE_DEVICES (CUDA's order); else in PCI order, as NVML has it.
  bool by_variable = false;
};

}  // namespace cudaguard

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "policy/selection.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// The GPUs that a program's devices 0 to count-1 are.
struct VisibleGpus {
  VisibleDevice devices[kMostGpus];
  uint16_t count = 0;  ///< 0: not known
  /// True if the devices are named by the numbers in CUDA_VISIBLE_DEVICES (CUDA's order), otherwise
  /// by NVML's indices (PCI order).
  bool by_variable = false;
};

}  // namespace cudaguard

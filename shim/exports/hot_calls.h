// SPDX-License-Identifier: Apache-2.0
// The slow way of the call that programs make in loops; the fast one is in hot_calls.cpp.
#pragma once

#include "shim/state/process.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

inline constexpr char kSetDevice[] = "cudaSetDevice";

/// One that was selected before exists: nothing to explain, to clamp or to record.
inline bool was_selected(const Process& here, int device) {
  return static_cast<unsigned>(device) < 64 &&
         (here.selected.load(std::memory_order_relaxed) >> device & 1) != 0;
}

/// As CUDA's cudaSetDevice.
int set_device_slowly(int device, const void* caller);

}  // namespace cudaguard

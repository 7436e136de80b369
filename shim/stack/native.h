// SPDX-License-Identifier: Apache-2.0
// Who called whom, by the unwinder that the process has (libgcc_s): none is loaded. Not
// thread-safe.
#pragma once

#include <cstdint>

#include "policy/message.h"
#include "shim/stack/maps.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

struct NativeStack {
  static constexpr unsigned kMost = 64;
  unsigned count;
  uint64_t addresses[kMost];
  CodePlace places[kMost];
};

/// The frames from `caller`, a return address on this thread's stack, outwards. Returns null, or
/// why there is none but the caller.
const char* unwind(const Maps& maps, const void* caller, NativeStack& to);

}  // namespace cudaguard

// SPDX-License-Identifier: Apache-2.0
// Who called whom, by the unwinder that the process has (libgcc_s): none is loaded. Not
// thread-safe.
#pragma once

#include <cstdint>

#include "policy/message.h"
#include "shim/stack/maps.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

struct Unwinder {
  // Of <unwind.h>, the Itanium C++ ABI's: _Unwind_Backtrace, _Unwind_GetIP.
  using Visit = int(void* frame, void* data);
  int (*backtrace)(Visit* visit, void* data);
  uint64_t (*address_of)(void* frame);

  uint64_t caller;
  unsigned count;
  uint64_t addresses[Stack::kMostNative];
};

/// Finds the unwinder. Returns null, or why there is none to be called.
const char* find_unwinder(const Maps& maps, Unwinder& to);
/// For backtrace(): collects the frames from `caller`, a return address, outwards.
int collect_frame(void* frame, void* unwinder);
/// Looks up where the frames are; the caller's alone if there are no others.
void find_places(const Maps& maps, Unwinder& from, Stack& to);

}  // namespace cudaguard

// SPDX-License-Identifier: Apache-2.0
// The guard's side of the beacon (shim/guard/text/beacon.h). Each function makes one system call,
// opens no file, allocates nothing and leaves errno alone. Thread-safe, async-signal-safe.
#pragma once

#include <string_view>

#include "shim/guard/text/beacon.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// Returns false if no launcher listens. If one does, the call returns after its answer.
bool announce(Beacon what, const void* caller);
/// Sends the record of an announced event, and the registers. Returns as announce() does.
bool send_beacon(Beacon what, const void* caller, std::string_view record);

}  // namespace cudaguard

// SPDX-License-Identifier: Apache-2.0
// Tells a launcher that listens (policy/beacon.h). One system call, no file, no memory, errno
// unchanged. Thread-safe, async-signal-safe.
#pragma once

#include <string_view>

#include "policy/beacon.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// False: nobody listens. Waits for the launcher where one does.
bool announce(Beacon what, const void* caller);
/// The record of what was announced, and from where the stack can be followed.
bool send_beacon(Beacon what, const void* caller, std::string_view record);

}  // namespace cudaguard

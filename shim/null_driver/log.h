// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cudaguard {

// Adds the refusal of a call to the driver's log: calls the program's callbacks, and writes to
// CUDA_LOG_FILE. The guard must have been told of the call. Lock-free, allocation-free.
[[gnu::visibility("hidden")]] void log_refusal();

}  // namespace cudaguard

// SPDX-License-Identifier: Apache-2.0
// The guard's variables as the process was started with them, copied before the program can change
// them: it may clear or overwrite its environment at any time, and setproctitle writes over it.
// No system call, no allocation. Thread-safe once it was read; async-signal-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <iterator>

#include "policy/config.h"
#include "policy/variables.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

struct StartEnvironment {
  std::atomic<bool> read{false};
  Environment variables;     ///< the values are in `text`
  bool wants_start = false;  ///< CUDAGUARD_HELLO=1
  /// One byte more than the longest value that is accepted: a longer one is still too long here.
  char text[kMaxReportPath + 2 + kMaxVisibleDevices + 2 + (std::size(kVariables) - 2) * 256] = {};
};

/// Reads `variables`, which end in a null pointer, unless it was done before.
void read_start_environment(StartEnvironment& to, char** variables);

/// The array that the kernel put on the first thread's stack, or null where it cannot be found.
/// For who asks before libc has set `environ`: constructors of .preinit_array, IFUNC resolvers.
char** kernel_environment();

}  // namespace cudaguard

// SPDX-License-Identifier: Apache-2.0
// The guard's variables at the start of the process, copied before the program can change them. The
// program may clear or overwrite its environment at any time, and setproctitle writes over it. No
// system call, no allocation. Thread-safe once the environment was read; async-signal-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <iterator>

#include "policy/variables.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

struct StartEnvironment {
  std::atomic<bool> read{false};
  Environment variables;     ///< the values are in `text`
  bool wants_start = false;  ///< CUDAGUARD_HELLO=1
  /// The locale's character set: ".UTF-8". Python and others change the locale's variables for
  /// themselves, but not what a terminal shows.
  char charset[32] = {};
  /// CUDA_VISIBLE_DEVICES; null if it was unset. A longer value is cut.
  const char* cuda_visible = nullptr;
  /// Room for one byte more than the longest accepted value, so that a value that is too long stays
  /// too long here.
  char text[kMaxReportPath + 2 + kMaxVisibleDevices + 2 + kMaxRules + 2 +
            (std::size(kVariables) - 2) * 256] = {};
};

/// Returns the value in "NAME=value" if the name is equal, otherwise null.
const char* value_of(const char* entry, const char* name);

/// Reads `variables`, which end in a null pointer, unless they were read before.
void read_start_environment(StartEnvironment& to, char** variables);

/// Returns the array that the kernel put on the first thread's stack, or null if it cannot be
/// found. For callers that run before libc has set `environ`: constructors of .preinit_array, IFUNC
/// resolvers.
char** kernel_environment();

}  // namespace cudaguard

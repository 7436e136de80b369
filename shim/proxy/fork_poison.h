// SPDX-License-Identifier: Apache-2.0
// A forked child of a process that had initialised CUDA can never use it (CUDA's rule). Users then
// suspect the wrong library, so one message names the one that did. Thread-safe, allocation-free.
#pragma once

#include "shim/proxy_loader/services.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// Remembers that cuInit has succeeded in this process, called by `caller`.
void remember_init(const void* caller);
/// Prints the message if this process is such a child, once.
void check_fork(Process& process, const char* api);

}  // namespace cudaguard

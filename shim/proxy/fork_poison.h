// SPDX-License-Identifier: Apache-2.0
// A forked child of a process that had initialised CUDA can never use it (CUDA's rule). Users then
// suspect the wrong library, so one line says who initialised it. Thread-safe, allocation-free.
#pragma once

#include "shim/proxy_loader/services.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// cuInit has succeeded here, asked for by `caller`.
void remember_init(const void* caller);
/// Says the line if this is such a child, once.
void check_fork(Process& process, const char* api);

}  // namespace cudaguard

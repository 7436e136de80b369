// SPDX-License-Identifier: Apache-2.0
// A forked child of a process that had initialised CUDA can never use it (CUDA's rule). Users then
// suspect the wrong library, so one line says who initialised it. Thread-safe, allocation-free.
#pragma once

#include "shim/state/process.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// cuInit has succeeded here, asked for by `caller`.
void remember_init(const void* caller);
/// Says the line if this is such a child; `api` is a constant.
void check_fork(Process& process, const char* api);

/// The same, at the price of one load after the first call.
inline void check_fork_once(Process& process, const char* api) {
  if (process.fork_checked.load(std::memory_order_relaxed)) [[likely]] {
    return;
  }
  process.fork_checked.store(true, std::memory_order_relaxed);
  check_fork(process, api);
}

}  // namespace cudaguard

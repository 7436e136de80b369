// SPDX-License-Identifier: Apache-2.0
// Explains three mistakes of programs that use CUDA, because CUDA's own errors do not name them: a
// wrong device index, a CUDA_VISIBLE_DEVICES that is written too late, and CUDA in a forked child
// of a process that has used it. No argument is kept, because its library may be unloaded.
// Thread-safe, allocation-free.
#pragma once

#include "shim/guard/state/process.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// A device index that CUDA refused, or that CLAMP replaced.
struct BadIndex {
  const char* api = nullptr;
  const void* caller = nullptr;
  int asked = 0;
  int count = 0;  ///< visible devices; 0 if unknown
  int used = -1;  ///< index used instead, under CLAMP
};
/// Prints one message per distinct case.
void print_bad_index(Process& process, const BadIndex& facts);

/// Call this for each `api` that `caller` calls. A forked child of a process that had initialised
/// CUDA can never use it (CUDA's rule). Users then suspect the wrong library, so one message names
/// the code that did.
void check_fork(Process& process, const char* api, const void* caller);

// A CUDA_VISIBLE_DEVICES is written too late after the program got the number of GPUs, or after
// cuInit has read the variable. The program cannot undo this, so one message reports it.

/// Call this when `api` is about to return `count` GPUs to `caller`.
void note_count(Process& process, const char* api, const void* caller, unsigned count);
/// Call this after `caller` has called cuInit with success, and `count` GPUs are visible.
void note_init(Process& process, const void* caller, unsigned count, const VisibleGpus& visible);
/// Reports a late write if it can be the reason why cuInit has found no device.
void note_no_device(Process& process);
/// Call this when CUDA looks wrong to the program.
void check_late_write(Process& process);

}  // namespace cudaguard

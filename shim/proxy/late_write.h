// SPDX-License-Identifier: Apache-2.0
// Finds a CUDA_VISIBLE_DEVICES that the program wrote too late: after it got the number of GPUs, or
// after cuInit has read the variable. The program cannot undo this, so one message reports it.
// Thread-safe, allocation-free.
#pragma once

#include "shim/proxy_loader/services.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// See Explainer.
void note_count(Process& process, const char* api, unsigned count);
/// Notes that cuInit has succeeded and that `count` GPUs are visible.
void note_init(Process& process, const char* api, unsigned count);
/// Reports a late write if it can be the reason why cuInit has found no device.
void note_no_device(Process& process);
/// See Explainer.
void check_late_write(Process& process);

}  // namespace cudaguard

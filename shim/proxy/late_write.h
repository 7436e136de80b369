// SPDX-License-Identifier: Apache-2.0
// CUDA_VISIBLE_DEVICES written too late: after somebody told the program how many GPUs there are,
// or after cuInit has read it. It cannot be undone inside the program; one line says so. Nothing is
// allocated; thread-safe.
#pragma once

#include "shim/proxy_loader/services.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// As in Explainer.
void note_count(Process& process, const char* api, unsigned count);
/// cuInit has succeeded and `count` GPUs are visible.
void note_init(Process& process, const char* api, unsigned count);
/// cuInit has found no device: because of a late write?
void note_no_device(Process& process);
/// As in Explainer.
void check_late_write(Process& process);

}  // namespace cudaguard

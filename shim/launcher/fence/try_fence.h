// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "shim/launcher/fence/fence.h"

namespace cudaguard::launcher {

/// Returns what put_up_fence(true) would return here. A child process tries it and ends, so this
/// process stays unchanged. Only the sign of `listener` is meaningful.
Fence try_fence();

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "shim/launcher/fence/fence.h"

namespace cudaguard::launcher {

/// What put_up_fence(true) would come to here. It is tried in a child process, which ends: this one
/// stays as it is. Of `listener` only the sign says something.
Fence try_fence();

}  // namespace cudaguard::launcher

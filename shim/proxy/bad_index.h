// SPDX-License-Identifier: Apache-2.0
// Prints one message per distinct case of a device index that CUDA refused or CLAMP replaced.
#pragma once

#include "shim/proxy_loader/services.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

void print_bad_index(Process& process, const BadIndex& facts);

}  // namespace cudaguard

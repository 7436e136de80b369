// SPDX-License-Identifier: Apache-2.0
// A device index that CUDA refused, or that CLAMP replaced: one line per distinct case.
#pragma once

#include "shim/proxy_loader/services.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

void say_bad_index(Process& process, const BadIndex& facts);

}  // namespace cudaguard

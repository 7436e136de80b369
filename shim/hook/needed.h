// SPDX-License-Identifier: Apache-2.0
// Finds out whether ld.so has the driver or NVML because another library needs it.
#pragma once

#include "policy/library.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// True if a loaded object that is not ours is linked to this library, Library::kDriver or kNvml.
/// Takes the lock of dlopen.
bool is_needed(Library library);

}  // namespace cudaguard

// SPDX-License-Identifier: Apache-2.0
// The real driver reads CUDA_VISIBLE_DEVICES through its own imported getenv, inside cuInit only
// (measured on 535 and 550). So we redirect the slot that ld.so fills for this import.
#pragma once

#include <link.h>

namespace [[gnu::visibility("hidden")]] cudaguard {

using Getenv = char* (*)(const char*);

/// Redirects every slot for `getenv` of the library. False if there is none or a write fails.
bool redirect_getenv(const link_map& library, Getenv to);

}  // namespace cudaguard

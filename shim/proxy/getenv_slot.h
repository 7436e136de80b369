// SPDX-License-Identifier: Apache-2.0
// The real driver reads CUDA_VISIBLE_DEVICES through its own imported getenv, inside cuInit only
// (measured on 535 and 550). The slot that ld.so fills for that import is redirected.
#pragma once

#include <link.h>

namespace [[gnu::visibility("hidden")]] cudaguard {

using Getenv = char* (*)(const char*);

/// Redirects every slot for `getenv` of the library. False: there is none, or it cannot be written.
bool redirect_getenv(const link_map& library, Getenv to);

}  // namespace cudaguard

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "shim/guard/loader.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// Loads `file` if the caller's DT_RUNPATH or DT_RPATH, or the program's DT_RPATH, leads to it:
/// what only this caller would find. False: none does. Leaves no dlerror; may change errno.
bool open_on_callers_path(const Loader& the, const char* file, const void* caller);

}  // namespace cudaguard

// SPDX-License-Identifier: Apache-2.0
// Search rules that depend on the caller: its run paths, and $ORIGIN in a path that it gives.
#pragma once

#include <cstddef>

#include "shim/elf/loader.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// Loads the file `name` from the caller's own search path, as ld.so reports it: DT_RPATH and those
/// of its loaders, LD_LIBRARY_PATH, DT_RUNPATH, all tokens expanded. Returns null if the file is
/// not there. Leaves no dlerror; may change errno.
void* open_on_callers_path(const Loader& the, const char* name, const void* caller);

/// Expands $ORIGIN, the caller's directory, at the start of a path. Returns false if the result
/// does not fit or the path holds another token, which only ld.so can expand.
bool expand_origin(const Loader& the, const char* path, const void* caller, char* to, size_t size);

}  // namespace cudaguard

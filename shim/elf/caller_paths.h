// SPDX-License-Identifier: Apache-2.0
// What only one caller's request leads to: its run paths, and $ORIGIN in a path that it gives.
#pragma once

#include <cstddef>

#include "shim/elf/loader.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// Loads the file `name` from the caller's own search path, as ld.so has it: DT_RPATH and those of
/// its loaders, LD_LIBRARY_PATH, DT_RUNPATH, all tokens expanded. Null: it is not there. Leaves no
/// dlerror; may change errno.
void* open_on_callers_path(const Loader& the, const char* name, const void* caller);

/// A path that starts with $ORIGIN, which is the caller's directory. False: it holds another token,
/// or does not fit; nobody but ld.so can tell then.
bool expand_origin(const char* path, const void* caller, char* to, size_t size);

}  // namespace cudaguard

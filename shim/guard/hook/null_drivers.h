// SPDX-License-Identifier: Apache-2.0
// The null drivers are complete drivers that report "no device". The guard loads them once per
// process, before the first dlopen goes on. From then on ld.so itself answers every request for the
// driver's SONAME. ld.so learns the dev names (libcuda.so, …) only when a request needs them,
// because that takes longer. There is no lock: if two threads race, they load the same files twice,
// and ld.so counts the handles. No function changes errno or leaves a dlerror.
#pragma once

#include <link.h>

#include "shim/guard/state/inherited.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// True if both null drivers have been loaded or found unusable.
inline bool null_drivers_tried() {
  return inherited.hook.null_drivers_tried.load(std::memory_order_acquire);
}

/// Returns the null driver if it is loaded. Loads nothing.
inline OwnLibrary loaded_null_driver(Library library) {
  return inherited.hook.null_drivers[index_of(library)].get();
}

/// Loads both on the first call.
OwnLibrary null_driver(Library library);

/// True if the object is a null driver, whoever has loaded it.
bool is_null_driver(const link_map& object);

/// Call this before a request that may lead to libc's own dlopen, which our hook does not see. From
/// the next null_driver() on, ld.so answers to the dev names, too.
void need_dev_names();

/// Reports once per process which file cannot be used and why.
void print_missing(Library library);

}  // namespace cudaguard

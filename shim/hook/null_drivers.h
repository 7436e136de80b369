// SPDX-License-Identifier: Apache-2.0
// The null drivers: complete drivers that report "no device", loaded once per process, before the
// first dlopen of anything goes on. From then on ld.so itself answers whoever asks for the driver
// by SONAME, whichever way; to make it answer to the dev names takes longer, and is done when
// needed. No lock: two threads that race load the same files twice, which ld.so counts. errno is
// the caller's afterwards, and no dlerror is left.
#pragma once

#include "shim/state/inherited.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

struct NullDriver {
  const char* path = nullptr;  ///< as ld.so knows it; null: could not be loaded
  const void* link_map = nullptr;

  /// An exported function of the null driver; null if it has none of that name or is not loaded.
  const void* symbol(const char* name) const;
};

enum class NullDriverKind { kDriver, kNvml };

/// Have both been loaded, or found unusable?
inline bool null_drivers_tried() {
  return inherited.null_drivers_tried.load(std::memory_order_acquire);
}

/// Loads both on the first call.
NullDriver null_driver(NullDriverKind kind);

/// Before what may lead to libc's own dlopen, which our hook does not see: from the next
/// null_driver() on ld.so answers to the dev names as well.
void need_dev_names();

/// Says, once per process, which file cannot be used and why.
void say_missing(NullDriverKind kind);

}  // namespace cudaguard

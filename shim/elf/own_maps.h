// SPDX-License-Identifier: Apache-2.0
// /proc/self/maps: which file is mapped at an address. Takes no lock (dladdr takes the loader's,
// which a forked child may inherit locked), allocates nothing. Thread-safe, async-signal-safe.
#pragma once

#include <cstddef>

#include "policy/message.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// The file mapped at `address` and the offset in it. The path is copied into `path`; an empty
/// module if nothing is mapped there, the mapping has no file, or /proc cannot be read. The path is
/// the real one, links resolved.
CodePlace place_of(const void* address, char* path, size_t size);

}  // namespace cudaguard

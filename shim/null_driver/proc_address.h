// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace cudaguard {

enum class Lookup { kFound, kUnknownName, kVersionTooLow };

struct LookupAnswer {
  Lookup status;
  void* entry;  // null unless found
};

// The entry that a program written for CUDA `version` means by `name`: the newest variant of that
// age. With `per_thread`, names that have a per-thread-default-stream variant mean that one.
[[gnu::visibility("hidden")]] LookupAnswer find_entry(const char* name, uint32_t version,
                                                      bool per_thread);

}  // namespace cudaguard

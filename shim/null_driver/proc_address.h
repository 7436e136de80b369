// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace cudaguard {

enum class Lookup { kFound, kUnknownName, kVersionTooLow };

struct LookupAnswer {
  Lookup status;
  void* entry;  // null unless found
};

// Returns what a program written for CUDA `version` means by `name`: the newest variant up to that
// version. With `per_thread`, a name that has a per-thread-default-stream variant means that one.
[[gnu::visibility("hidden")]] LookupAnswer find_entry(const char* name, uint32_t version,
                                                      bool per_thread);

}  // namespace cudaguard

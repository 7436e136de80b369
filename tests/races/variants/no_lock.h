// SPDX-License-Identifier: Apache-2.0
// Included before everything else. This lock does nothing, which shows that the tests can fail.
#pragma once

#define Lock WorkingLock
#include "shim/guard/sys/memory.h"
#undef Lock

namespace [[gnu::visibility("hidden")]] cudaguard {

class Lock {
 public:
  explicit Lock(std::atomic<uint32_t>& /*word*/) {}
  ~Lock() {}  // NOLINT(modernize-use-equals-default): a variable of this type is then used
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
};

}  // namespace cudaguard

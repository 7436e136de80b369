// SPDX-License-Identifier: Apache-2.0
// The state of the proxies that a forked child must not inherit (see shim/guard/state/process.h).
// driver_state.h and nvml_state.h have the rest.
#pragma once

#include <atomic>
#include <cstdint>

namespace [[gnu::visibility("hidden")]] cudaguard {

struct ProxyProcess {
  /// Locks. A thread of the parent may hold one at a fork, and the child would never find it free.
  std::atomic<uint32_t> binding{0};
  std::atomic<uint32_t> initialising{0};
  std::atomic<uint32_t> initialiser{0};  ///< the thread that holds `initialising`
  /// A cuInit has succeeded in this process; every guarded call reads this. Not a bool, whose load
  /// would be a function call under -Os.
  std::atomic<uint32_t> open{0};
};

}  // namespace cudaguard

// SPDX-License-Identifier: Apache-2.0
// The proxies' access to the guard, and the state that both have. Thread-safe, lock-free.
#pragma once

#include <link.h>

#include "shim/guard/proxy_loader/services.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// The variables that both proxies have. Each proxy derives its own struct, which is all zero at
/// the start. A forked child inherits the struct together with the real library.
struct ProxyState {
  std::atomic<const Services*> guard{nullptr};
  std::atomic<bool> bound{false};                   ///< the real functions are known
  std::atomic<const link_map*> kept_nvml{nullptr};  ///< see open_nvml
};
ProxyState& proxy_state();

/// Returns null if the process has no guard of this build. The proxy denies every call then.
const Services* find_guard();

/// The guard, after find_guard() or adopt_guard() has found one.
inline const Services& the_guard() { return *proxy_state().guard.load(std::memory_order_acquire); }

/// Uses the guard that has loaded this proxy. Returns false if the guard is of another build.
bool adopt_guard(const Services* guard);

}  // namespace cudaguard

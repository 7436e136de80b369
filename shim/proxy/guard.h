// SPDX-License-Identifier: Apache-2.0
// The guard, as a proxy sees it, and what both proxies know. Thread-safe, lock-free.
#pragma once

#include <link.h>

#include "shim/proxy_loader/services.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// What a proxy knows: all of its variables. A forked child inherits it, as it does the real
/// library. Each proxy's own struct has this one as its base, and is all zero at first.
struct ProxyState {
  std::atomic<const Services*> guard{nullptr};
  std::atomic<bool> bound{false};                   ///< to the real library
  std::atomic<const link_map*> kept_nvml{nullptr};  ///< see open_nvml
};
ProxyState& proxy_state();

/// Null: there is no guard of this build in the process; nothing may be let through then.
const Services* find_guard();

/// The same, once there is one.
inline const Services& the_guard() { return *proxy_state().guard.load(std::memory_order_acquire); }

/// The guard that has loaded this proxy: it is asked from now on. False: of another build.
bool adopt_guard(const Services* guard);

}  // namespace cudaguard

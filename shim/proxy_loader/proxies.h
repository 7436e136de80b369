// SPDX-License-Identifier: Apache-2.0
// The proxies: our libraries in front of the real driver and NVML, for the policies that let
// CUDA through. Loaded when the program first asks for the driver; at its first dlopen where that
// would be too late (load_proxies_early). Where the driver's cannot be used, FORCE_CPU applies
// from then on; where NVML's cannot, NVML is refused. errno and dlerror are the caller's
// afterwards.
#pragma once

#include "shim/state/process.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

enum class ProxyKind { kDriver, kNvml };

struct Proxy {
  const char* path = nullptr;      ///< as ld.so knows it
  const void* link_map = nullptr;  ///< null: there is no real library, or FORCE_CPU applies now
  const void* symbol(const char* name) const;
};

/// Loads it, and with it the real library, on the first call that can. Takes ld.so's lock.
Proxy proxy(Process& process, ProxyKind kind);

/// At the first request of any kind in a process. With an allow-list or CUDAGUARD_CHILDREN: binds
/// the driver's view before anything can reach the driver in a way that does not lead past the
/// hooks (DT_NEEDED of a plug-in, RTLD_DEEPBIND). Else: only what is mapped already, for linked
/// programs.
void load_proxies_early(Process& process);

/// The name to give to ld.so in place of `name`, a request for the driver or NVML with `mode`.
/// Null: FORCE_CPU applies (it may just have begun to).
const char* name_with_proxy(Process& process, ProxyKind kind, const char* name, int mode,
                            const void* caller);

}  // namespace cudaguard

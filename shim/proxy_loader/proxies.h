// SPDX-License-Identifier: Apache-2.0
// Loads the proxies for the policies that allow CUDA. A proxy is loaded when the program first asks
// for the driver or, if that would be too late, at its first dlopen (load_proxies_early). If the
// driver's proxy cannot be used, FORCE_CPU applies from then on. If NVML's cannot be used, NVML is
// refused. errno and dlerror stay as they were.
#pragma once

#include "shim/state/process.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

enum class ProxyKind { kDriver, kNvml };

struct Proxy {
  const char* path = nullptr;      ///< as ld.so knows it
  const void* link_map = nullptr;  ///< null: there is no real library, or FORCE_CPU applies now
  const void* symbol(const char* name) const;
};

/// Returns the proxy. The first call that can loads it with its real library, under ld.so's lock.
Proxy proxy(Process& process, ProxyKind kind);

/// Called at the first dlopen in a process. With an allow-list or CUDAGUARD_CHILDREN, binds the
/// driver's view before a plug-in can reach the driver without our hooks (DT_NEEDED,
/// RTLD_DEEPBIND). Otherwise, loads only the proxies of libraries that are mapped already.
void load_proxies_early(Process& process);

/// Returns the name that ld.so gets instead of `name`, a request for the driver or NVML with
/// `mode`. Returns null if FORCE_CPU applies, perhaps only from now on.
const char* name_with_proxy(Process& process, ProxyKind kind, const char* name, int mode,
                            const void* caller);

}  // namespace cudaguard

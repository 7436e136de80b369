// SPDX-License-Identifier: Apache-2.0
// Loads the proxies for the policies that allow CUDA. A proxy is loaded when the program first asks
// for the driver or, if that would be too late, at its first dlopen (load_proxies_early). If the
// driver's proxy cannot be used, FORCE_CPU applies from then on. If NVML's cannot be used, NVML is
// refused. errno and dlerror stay as they were.
#pragma once

#include "policy/dlopen.h"
#include "shim/guard/state/process.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// Returns the proxy; none if there is no real library, or if FORCE_CPU applies now. The first call
/// that can loads it with its real library, under ld.so's lock.
OwnLibrary proxy(Process& process, Library library);

/// Called at the first dlopen in a process. With an allow-list or CUDAGUARD_CHILDREN, binds the
/// driver's view before a plug-in can reach the driver without our hooks (DT_NEEDED,
/// RTLD_DEEPBIND). Otherwise, loads only the proxies of libraries that are mapped already.
void load_proxies_early(Process& process);

/// Loads the proxy for a request for the driver or NVML by this name, if ld.so finds the library
/// for us: without the caller's run path, and without its directory in place of $ORIGIN. FORCE_CPU
/// may apply after that.
Substitute make_proxy_ready(Process& process, Library library, const char* name, int mode,
                            const void* caller);

/// Reports that the library of this name cannot be served by the proxy.
void print_not_ours(Library library, const char* name);

}  // namespace cudaguard

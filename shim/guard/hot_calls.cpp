// SPDX-License-Identifier: Apache-2.0
// The two calls that programs make in loops: a few loads and a jump once the first call of its kind
// has gone the slow way (limit: 3 ns, scripts/bench F1). Plain ABI types: no CUDA header.
#include "shim/guard/hot_calls.h"

#include "shim/guard/caller_scope.h"
#include "shim/guard/process.h"

using namespace cudaguard;  // NOLINT(google-build-using-namespace): only extern "C" below

#define CG_CALLER __builtin_return_address(0)

#pragma GCC visibility push(default)
extern "C" {

// A device that was selected before in this process exists: nothing to explain, to clamp or to
// record. So the runtime of the caller is all that matters.
int cudaSetDevice(int device) {
  const void* caller = CG_CALLER;
  const Process* here = detail::current_process.load(std::memory_order_acquire);
  if (here != nullptr && static_cast<unsigned>(device) < 64 &&
      (here->selected.load(std::memory_order_relaxed) >> device & 1) != 0) [[likely]] {
    const CallSite& site = here->call_sites[call_site_of(caller)];
    const uint32_t version = site.version.load(std::memory_order_acquire);
    const auto real = reinterpret_cast<int (*)(int)>(site.target.load(std::memory_order_relaxed));
    if (site.caller.load(std::memory_order_relaxed) == caller &&
        site.generation.load(std::memory_order_relaxed) ==
            detail::library_requests.load(std::memory_order_relaxed)) {
      std::atomic_thread_fence(std::memory_order_acquire);
      if (site.version.load(std::memory_order_relaxed) == version && version % 2 == 0) {
        return real(device);
      }
    }
  }
  return set_device_slowly(device, caller);
}

int cuDeviceGet(int* device, int ordinal) {
  const Process* here = detail::current_process.load(std::memory_order_acquire);
  if (here != nullptr) [[likely]] {
    const auto companions =
        reinterpret_cast<int (*)(int*, int)>(here->device_get.load(std::memory_order_acquire));
    if (companions != nullptr) return companions(device, ordinal);
  }
  return get_device_slowly(device, ordinal, CG_CALLER);
}
}
#pragma GCC visibility pop

// SPDX-License-Identifier: Apache-2.0
// What the NVML proxy knows: the real functions, and the GPUs that are shown. Thread-safe.
#pragma once

#include <cstddef>

#include "shim/elf/object.h"
#include "shim/proxy/gpus.h"
#include "shim/proxy/guard.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

enum Guarded : size_t {
#define GUARDED_NVML(name, where) k_##name,
#include "shim/api/guarded.inc"
  kGuardedCount
};

/// What a call may do.
enum class Way {
  kDeny,     ///< FORCE_CPU: no GPU
  kForward,  ///< as without us
  kFilter,   ///< inside the allow-list
};
struct Access {
  Way way = Way::kDeny;
  const Services* guard = nullptr;
  bool records = false;  ///< false where nothing is to be recorded or explained
};
/// `caller`: the return address. NVIDIA's functions call each other by name, which leads to ours:
/// such a call is not the program's. It is forwarded, and nothing is recorded.
Access access(const void* caller);

/// The GPU that a MIG device is a part of; null for a handle of a GPU.
nvmlDevice_t parent_gpu(nvmlDevice_t device);

/// After a successful real init. False: the list is wrong; FORCE_CPU applies now.
bool make_view(const Services& guard);

/// The shown GPUs as NVML indices.
struct Shown {
  unsigned physical[kMostGpus];
  unsigned count;
};

struct NvmlProxyState : ProxyState {
  /// The real functions; null where the real NVML has none of that name.
  void* real[kGuardedCount] = {};
  nvmlReturn_t (*parent)(nvmlDevice_t, nvmlDevice_t*) = nullptr;
  nvmlReturn_t (*is_mig)(nvmlDevice_t, unsigned*) = nullptr;
  /// Where the real NVML lies, and this library: whose jumps have the return address of our call.
  Extent inside;
  Extent self;
  std::atomic<const Shown*> shown{nullptr};  ///< null before make_view
};
extern constinit NvmlProxyState nvml;  // NOLINT(bugprone-dynamic-static-initializers): constinit

inline const Shown* shown() { return nvml.shown.load(std::memory_order_acquire); }

}  // namespace cudaguard

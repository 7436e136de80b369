// SPDX-License-Identifier: Apache-2.0
// State of the NVML proxy: the real functions, and the GPUs that it shows. Thread-safe.
#pragma once

#include <cstddef>

#include "shim/guard/elf/object.h"
#include "shim/proxy/gpus.h"
#include "shim/proxy/guard.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

enum Guarded : size_t {
#define GUARDED_NVML(name, where) k_##name,
#include "shim/api/guarded.inc"
  kGuardedCount
};

/// What the proxy does with a call.
enum class Way {
  kDeny,     ///< shows no GPU (FORCE_CPU)
  kForward,  ///< calls the real function
  kFilter,   ///< shows the GPUs of the allow-list
};
struct Access {
  Way way = Way::kDeny;
  const Services* guard = nullptr;
  bool records = false;  ///< false if the call needs neither a record nor an explanation
};
/// `caller` is the return address. NVIDIA's functions call each other by name, which reaches ours.
/// The program did not make such a call, so it is forwarded without a record.
Access access(const void* caller);

/// The GPU that contains this MIG device; null for a handle of a GPU.
nvmlDevice_t parent_gpu(nvmlDevice_t device);

/// Decides after a successful init which GPUs are shown. Returns false if memory is short, or if
/// the list is wrong and FORCE_CPU applies from now on.
bool make_view(const Services& guard);

/// The shown GPUs as NVML indices.
struct Shown {
  unsigned physical[kMostGpus];
  unsigned count;
};

struct NvmlProxyState : ProxyState {
  /// The real functions; null if the real NVML has none of that name.
  void* real[kGuardedCount] = {};
  nvmlReturn_t (*parent)(nvmlDevice_t, nvmlDevice_t*) = nullptr;
  nvmlReturn_t (*is_mig)(nvmlDevice_t, unsigned*) = nullptr;
  /// Address ranges of the real NVML and of this library. If NVML jumps from one of its functions
  /// to another, the return address is that of our call.
  Extent inside;
  Extent self;
  std::atomic<const Shown*> shown{nullptr};  ///< null before make_view
};
extern constinit NvmlProxyState nvml;  // NOLINT(bugprone-dynamic-static-initializers): constinit

inline const Shown* shown() { return nvml.shown.load(std::memory_order_acquire); }

}  // namespace cudaguard

// SPDX-License-Identifier: Apache-2.0
// The GPUs of this machine as the real NVML lists them, and the allowed ones among them. Both
// proxies ask this; each once per process. Thread-safe: the objects are the caller's.
#pragma once

#include <nvml.h>

#include "policy/device_list.h"
#include "shim/proxy/guard.h"
#include "shim/proxy/real_library.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// What is needed of NVML. Null pointers where it has no such function.
struct Nvml {
  /// nvmlInit_v2 calls this one by its name, which leads to us: it would be the program's.
  nvmlReturn_t (*init_with_flags)(unsigned) = nullptr;
  nvmlReturn_t (*init_v2)() = nullptr;  ///< of an older NVML
  nvmlReturn_t (*shutdown)() = nullptr;
  nvmlReturn_t (*count)(unsigned*) = nullptr;
  nvmlReturn_t (*by_index)(unsigned, nvmlDevice_t*) = nullptr;
  nvmlReturn_t (*uuid)(nvmlDevice_t, char*, unsigned) = nullptr;
  nvmlReturn_t (*most_mig)(nvmlDevice_t, unsigned*) = nullptr;
  nvmlReturn_t (*mig_by_index)(nvmlDevice_t, unsigned, nvmlDevice_t*) = nullptr;

  explicit Nvml(const RealLibrary& library);
  bool usable() const {
    return (init_with_flags != nullptr || init_v2 != nullptr) && shutdown != nullptr &&
           count != nullptr && by_index != nullptr && uuid != nullptr;
  }
  bool init() const {
    return (init_with_flags != nullptr ? init_with_flags(0) : init_v2()) == NVML_SUCCESS;
  }
};

/// Fills `machine`; NVML must be initialised. False: it does not say.
bool list_gpus(const Nvml& nvml, Machine& machine);

/// The machine, and what the allow-list allows of it.
struct Allowed {
  Machine machine;
  View view;
};

/// NVML is in use here, and lists none. The view is empty then.
inline bool has_no_gpu(const Allowed& allowed) {
  return allowed.machine.known && allowed.machine.count == 0;
}

/// Opens the real NVML now, because a constructor may wait for the thread that calls cuInit:
/// nothing is opened then. Once.
void open_nvml(const Loader& the);

/// Resolves the list; an error is said (once per process) and left in `view`.
void resolve_list(Allowed& allowed);

}  // namespace cudaguard

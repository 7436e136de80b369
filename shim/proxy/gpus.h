// SPDX-License-Identifier: Apache-2.0
// Lists the GPUs of this machine by the real NVML, and the allowed GPUs among them. Each proxy
// does this once per process. Thread-safe, because all objects belong to the caller.
#pragma once

#include "policy/device_list.h"
#include "shim/api/cuda.h"
#include "shim/proxy/guard.h"
#include "shim/proxy/real_library.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// The NVML functions that we need. A pointer is null if this NVML lacks the function.
struct Nvml {
  /// Preferred: nvmlInit_v2 calls this function by name, which would look like the program's call.
  nvmlReturn_t (*init_with_flags)(unsigned) = nullptr;
  nvmlReturn_t (*init_v2)() = nullptr;  ///< for an older NVML
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

/// Fills `machine`; NVML must be initialised. Returns false if NVML fails or `machine` is full.
bool list_gpus(const Nvml& nvml, Machine& machine);

/// The GPUs of this machine, and those that the allow-list allows.
struct Allowed {
  Machine machine;
  View view;
};

/// True if NVML works and lists no GPU. The view is empty then.
inline bool has_no_gpu(const Allowed& allowed) {
  return allowed.machine.known && allowed.machine.count == 0;
}

/// Opens the real NVML, once. cuInit must not open a library, because a constructor may wait for
/// the thread that calls cuInit.
void open_nvml(const Loader& loader);

/// Resolves the list. Prints an error once per process, and leaves the error in `view`.
void resolve_list(Allowed& allowed);

}  // namespace cudaguard

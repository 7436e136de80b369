// SPDX-License-Identifier: Apache-2.0
// What the guard does for the companions: it owns the configuration, the records and the lines of a
// process. Guard and companions are built and installed together; a companion that was built from
// other headers is refused. Every function is thread-safe and leaves errno and dlerror alone.
#pragma once

#include <cstdint>
#include <string_view>

#include "interface_id.h"
#include "policy/config.h"
#include "policy/message.h"
#include "shim/elf/loader.h"
#include "shim/record/record.h"
#include "shim/through/bad_index.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

struct Services {
  uint32_t id = CUDAGUARD_INTERFACE_ID;  ///< in front; the rest has a meaning where it is the same

  Policy (*policy)() = nullptr;                          ///< of this process, now
  std::string_view (*allow_list)() = nullptr;            ///< empty: every GPU
  const char* (*variable)(const char* name) = nullptr;   ///< of the environment
  void (*fall_back)(Process::Fallen because) = nullptr;  ///< FORCE_CPU from now on
  bool (*wants_events)() = nullptr;
  void (*record_event)(const Event& event) = nullptr;
  /// A denied call.
  void (*record_touch)(const char* api, const void* caller) = nullptr;
  void (*say)(Process::Said bit, Writer write, const void* context) = nullptr;
  void (*say_bad_index)(const BadIndex& facts) = nullptr;
  void (*note_count)(const char* api, unsigned count) = nullptr;
  /// A cuInit that succeeded.
  void (*note_init)(const char* api, unsigned count, const void* caller) = nullptr;
  /// A cuInit that found no device.
  void (*note_no_device)() = nullptr;
  void (*check_fork)(const char* api) = nullptr;
  void (*set_visible)(const VisibleGpus& gpus) = nullptr;

  Process::Locks& (*locks)() = nullptr;  ///< of this process: a forked child's are free

  /// libc's own functions, to be called from the companion's code: they look at who calls.
  const Loader& (*loader)() = nullptr;
};

/// The guard's own, whichever copy of it is first in the search order.
const Services& own_services();

}  // namespace cudaguard

extern "C" {
/// Exported by the guard.
[[gnu::visibility("default")]] const cudaguard::Services* cudaguard_services_v1();
/// Exported by each companion: binds the real library. Null, or why CUDA must not be let through;
/// empty: the guard is of another build.
using cudaguard_prepare_v1 = const char*(const cudaguard::Services*);
}

// SPDX-License-Identifier: Apache-2.0
// Two tables of functions: what the guard does for the proxies (it owns the state, the records
// and the lines of a process), and what the driver's proxy does for the guard. They are built
// and installed together; a proxy that was built from other headers is refused. Every function
// is thread-safe and leaves errno and dlerror alone.
#pragma once

#include <cstdint>

#include "interface_id.h"
#include "shim/elf/loader.h"
#include "shim/record/record.h"
#include "shim/state/process.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

struct Services {
  uint32_t id = CUDAGUARD_INTERFACE_ID;  ///< in front; the rest has a meaning where it is the same

  Process& (*process)() = nullptr;  ///< this one's state: a forked child's is another
  InheritedState* inherited = nullptr;
  /// libc's own functions, to be called from the proxy's code: they look at who calls.
  const Loader& (*loader)() = nullptr;
  const char* (*variable)(const char* name) = nullptr;  ///< of the environment

  decltype(&cudaguard::fall_back) fall_back = nullptr;
  decltype(&cudaguard::record_event) record_event = nullptr;
  decltype(&cudaguard::record_touch) record_touch = nullptr;
  decltype(&cudaguard::print_message) print_message = nullptr;
  decltype(&cudaguard::say_case) say_case = nullptr;
};

/// A device index that CUDA refused, or that CLAMP replaced.
struct BadIndex {
  const char* api = nullptr;
  const void* caller = nullptr;
  int asked = 0;
  int count = 0;  ///< visible devices; 0: not known
  int used = -1;  ///< under CLAMP: what was used instead
};

/// What there is to explain once CUDA was let through. `api` is a constant.
struct Explainer {
  /// `api` is called: may this process use CUDA at all, after a fork?
  void (*check_fork)(Process& process, const char* api) = nullptr;
  /// `api` is about to tell the program that there are `count` GPUs.
  void (*note_count)(Process& process, const char* api, unsigned count) = nullptr;
  /// Something looks wrong to the program: was CUDA_VISIBLE_DEVICES written too late?
  void (*check_late_write)(Process& process) = nullptr;
  void (*say_bad_index)(Process& process, const BadIndex& facts) = nullptr;
};

}  // namespace cudaguard

extern "C" {
/// Exported by the guard: whichever copy of it is first in the search order.
[[gnu::visibility("default")]] const cudaguard::Services* cudaguard_services_v1();
/// Exported by each proxy: binds the real library. Null where it can be used; empty: the guard
/// is of another build; else it has said why, and FORCE_CPU applies.
using cudaguard_prepare_v1 = const char*(const cudaguard::Services*);
}

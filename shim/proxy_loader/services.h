// SPDX-License-Identifier: Apache-2.0
// Two tables of functions. By one the proxies use the guard, which owns the state, the records and
// the messages of a process. By the other the guard uses the driver's proxy. The guard refuses a
// proxy of other headers. Every function is thread-safe and keeps errno and dlerror.
#pragma once

#include <cstdint>

#include "interface_id.h"
#include "shim/elf/loader.h"
#include "shim/record/record.h"
#include "shim/state/process.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

struct Services {
  uint32_t id = CUDAGUARD_INTERFACE_ID;  ///< first, because the rest is valid only if ids match

  Process& (*process)() = nullptr;  ///< state of this process; a forked child has its own
  Policy (*policy)(const Process&) = nullptr;  ///< the one in force
  InheritedState* inherited = nullptr;
  /// libc's own functions. The proxy's code must call them, because they look at their caller.
  const Loader& (*loader)() = nullptr;
  const char* (*variable)(const char* name) = nullptr;  ///< from the environment

  decltype(&cudaguard::fall_back) fall_back = nullptr;
  decltype(&cudaguard::record_event) record_event = nullptr;
  decltype(&cudaguard::record_attempt) record_attempt = nullptr;
  decltype(&cudaguard::print_message) print_message = nullptr;
  decltype(&cudaguard::print_case) print_case = nullptr;
};

/// A device index that CUDA refused, or that CLAMP replaced.
struct BadIndex {
  const char* api = nullptr;
  const void* caller = nullptr;
  int asked = 0;
  int count = 0;  ///< visible devices; 0 if unknown
  int used = -1;  ///< index used instead, under CLAMP
};

/// Explanations for programs that use CUDA. `api` is a constant.
struct Explainer {
  /// Called for each `api`. Explains that a process forked after cuInit cannot use CUDA.
  void (*check_fork)(Process& process, const char* api) = nullptr;
  /// Called when `api` is about to return `count` GPUs to the program.
  void (*note_count)(Process& process, const char* api, unsigned count) = nullptr;
  /// Called when CUDA looks wrong to the program. Reports a CUDA_VISIBLE_DEVICES written too late.
  void (*check_late_write)(Process& process) = nullptr;
  void (*print_bad_index)(Process& process, const BadIndex& facts) = nullptr;
};

/// Whether a proxy can be used.
enum class Prepared : uint32_t {
  kReady,
  kOtherBuild,   ///< the guard is of another build
  kNotEnforced,  ///< the reason has been printed, and FORCE_CPU applies
};

}  // namespace cudaguard

extern "C" {
/// Exported by the guard. ld.so picks the copy that is first in the search order.
[[gnu::visibility("default")]] const cudaguard::Services* cudaguard_services_v1();
/// Exported by each proxy as cudaguard_proxy_prepare_v2; binds the real library.
using cudaguard_prepare_v2 = cudaguard::Prepared(const cudaguard::Services*);
}

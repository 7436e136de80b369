// SPDX-License-Identifier: Apache-2.0
// The table of functions by which the proxies use the guard, which owns the state, the records, the
// messages and the explanations of a process. The guard refuses a proxy of other headers. Every
// function is thread-safe and keeps errno and dlerror.
#pragma once

#include <cstdint>

#include "interface_id.h"
#include "shim/guard/elf/loader.h"
#include "shim/guard/explain/explain.h"
#include "shim/guard/record/record.h"
#include "shim/guard/state/process.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

struct Services {
  uint32_t id = CUDAGUARD_INTERFACE_ID;  ///< first, because the rest is valid only if ids match

  Process& (*process)() = nullptr;  ///< state of this process; a forked child has its own
  Policy (*policy)(const Process&) = nullptr;  ///< the one in force
  /// libc's own functions. The proxy's code must call them, because they look at their caller.
  const Loader& (*loader)() = nullptr;
  const char* (*variable)(const char* name) = nullptr;  ///< from the environment

  decltype(&cudaguard::fall_back) fall_back = nullptr;
  decltype(&cudaguard::record_event) record_event = nullptr;
  decltype(&cudaguard::begin_call) begin_call = nullptr;
  decltype(&cudaguard::end_call) end_call = nullptr;
  decltype(&cudaguard::record_attempt) record_attempt = nullptr;
  decltype(&cudaguard::record_no_context) record_no_context = nullptr;
  decltype(&cudaguard::print_message) print_message = nullptr;

  decltype(&cudaguard::print_bad_index) print_bad_index = nullptr;
  decltype(&cudaguard::check_fork) check_fork = nullptr;
  decltype(&cudaguard::note_count) note_count = nullptr;
  decltype(&cudaguard::note_init) note_init = nullptr;
  decltype(&cudaguard::note_no_device) note_no_device = nullptr;
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

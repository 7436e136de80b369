// SPDX-License-Identifier: Apache-2.0
// CUDA attempts by programs that are linked to the driver, NVML or the runtime.
#pragma once

#include "shim/guard/record/record.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// Records that `api` was denied.
inline int denied(Process& process, const char* api, const void* caller, int answer) {
  record_attempt(process, api, nullptr, caller);
  return answer;
}
/// Records that `api` was allowed and that there is no driver. Returns 100.
inline int no_driver(Process& process, const char* api, const void* caller) {
  record_no_driver(process, api, caller);
  return 100;
}

}  // namespace cudaguard

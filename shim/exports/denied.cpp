// SPDX-License-Identifier: Apache-2.0
#include "shim/exports/denied.h"

#include "shim/record/record.h"

namespace cudaguard {

int denied(Process& here, const char* api, const void* caller, int answer) {
  record_touch(here, api, nullptr, caller);
  return answer;
}

int no_driver(Process& here, const char* api, const void* caller) {
  record_no_driver(here, api, caller);
  return 100;
}

}  // namespace cudaguard

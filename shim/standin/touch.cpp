// SPDX-License-Identifier: Apache-2.0
#include "shim/standin/touch.h"

#include "shim/elf/base_namespace.h"

// Bound by ld.so to the preloaded guard; null without one, and in a namespace of dlmopen.
extern "C" [[gnu::weak, gnu::visibility("default")]] void cudaguard_touch_v1(
    unsigned abi, const char* api, const void* return_address);

namespace cudaguard {

void touch(const char* api, const void* caller) {
  constexpr unsigned kAbi = 1;
  auto* tell = &cudaguard_touch_v1;
  if (tell == nullptr) {
    tell = reinterpret_cast<decltype(tell)>(const_cast<void*>(guards_symbol("cudaguard_touch_v1")));
  }
  if (tell != nullptr) tell(kAbi, api, caller);
}

}  // namespace cudaguard

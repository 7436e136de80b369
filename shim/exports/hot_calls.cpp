// SPDX-License-Identifier: Apache-2.0
// The call that programs make in loops: a few loads and a jump once the first one has gone the slow
// way (limit: 3 ns, scripts/bench F1). Plain ABI types: no CUDA header.
#include "shim/exports/hot_calls.h"

using namespace cudaguard;  // NOLINT(google-build-using-namespace): only extern "C" below

extern "C" [[gnu::visibility("default")]] int cudaSetDevice(int device) {
  const void* caller = __builtin_return_address(0);
  // Nothing is selected in a forked child, nor in one whose kernel does not wipe pages.
  const Process* here = lasting.process.load(std::memory_order_acquire);
  if (here != nullptr && was_selected(*here, device)) [[likely]] {
    const auto real = reinterpret_cast<int (*)(int)>(here->answers.known(kSetDevice, caller));
    if (real != nullptr) [[likely]] {
      return real(device);
    }
  }
  return set_device_slowly(device, caller);
}

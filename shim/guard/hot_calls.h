// SPDX-License-Identifier: Apache-2.0
// The slow ways of the two calls that programs make in loops; the fast ones are in hot_calls.cpp.
#pragma once

#include <atomic>
#include <cstdint>

namespace [[gnu::visibility("hidden")]] cudaguard {

/// What is known of one place that calls cudaSetDevice. `version` is odd while somebody writes: who
/// finds it odd, or changed afterwards, goes the slow way.
struct CallSite {
  std::atomic<uint32_t> version{0};
  std::atomic<const void*> caller{nullptr};
  std::atomic<uint64_t> generation{0};  ///< of the loaded libraries (caller_scope.h)
  std::atomic<void*> target{nullptr};
};
inline constexpr unsigned kCallSites = 8;
inline unsigned call_site_of(const void* caller) {
  return (reinterpret_cast<uintptr_t>(caller) >> 3) % kCallSites;
}

/// As CUDA's cudaSetDevice and cuDeviceGet.
int set_device_slowly(int device, const void* caller);
int get_device_slowly(int* device, int ordinal, const void* caller);

}  // namespace cudaguard

// SPDX-License-Identifier: Apache-2.0
// The state of stack/ (see shim/guard/state/process.h).
#pragma once

#include <atomic>
#include <cstdint>

namespace [[gnu::visibility("hidden")]] cudaguard {

/// How to read the Python frames of the calling thread without a look at the process's mappings.
/// stack/python sets it at the first attempt that has Python frames.
struct PythonFrames {
  enum State : uint8_t {
    kUnknown,
    kNoFrames,  ///< at the last look no CPython was loaded, or one of an unknown build
    kBeingSet,
    kKnown,
    kMayMove,  ///< a library that a dlclose may unload, so its functions are not called
  };
  std::atomic<uint8_t> state{kUnknown};
  uint64_t (*thread_state)() = nullptr;
  int (*is_initialized)() = nullptr;
  int (*is_finalizing[2])() = {};  ///< each may be null
  const void* (*newest)() = nullptr;
  const void* (*main)() = nullptr;  ///< may be null
  int (*line)(uint64_t code, int instruction) = nullptr;
  uint64_t code_type = 0;
  // Offsets of members.
  uint16_t thread_frame = 0;
  int8_t current = 0;  ///< -1: there is no such member
  uint16_t back = 0;
  uint16_t code = 0;
  uint16_t instruction = 0;
  uint16_t bytecode = 0;
  uint16_t unit = 0;
  uint16_t file = 0;
  uint16_t ascii = 0;
  uint16_t compact = 0;
};

}  // namespace cudaguard

// SPDX-License-Identifier: Apache-2.0
// The places in the code that have asked for a GPU in this process. They are part of Process, whose
// pages are empty in a forked child. All-zero is the empty state. No lock; thread-safe,
// async-signal-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

namespace [[gnu::visibility("hidden")]] cudaguard {

/// A hash of several values. 0 is never a result, because the tables have it for "none".
class Hash {
 public:
  Hash& add(uint64_t value) {
    value_ = (value_ ^ value) * 0x9e3779b97f4a7c15;
    value_ ^= value_ >> 29;
    return *this;
  }
  Hash& add(const void* value) { return add(reinterpret_cast<uintptr_t>(value)); }
  Hash& add(std::string_view text) {
    for (const char c : text) add(static_cast<uint64_t>(static_cast<unsigned char>(c)));
    return add(text.size());
  }
  uint64_t result() const { return value_ == 0 ? 1 : value_; }

 private:
  uint64_t value_ = 0x243f6a8885a308d3;
};

class Places {
 public:
  /// The most places that one process reports.
  static constexpr uint32_t kMost = 2048;

  enum class Added : uint8_t {
    kKnown,
    kNew,
    kOneTooMany,  ///< the first place for which there is no room
    kTooMany,
  };
  /// `place` is a hash of the function, the calling library and the user's line.
  Added add(uint64_t place);
  /// True if a place was refused.
  bool is_full() const { return full_.load(std::memory_order_relaxed); }
  /// Empties the list.
  void forget();

  // A cache of calls whose place is known. `call` is a hash of what can be read at little cost: the
  // return address and Python's frames. A call that was overwritten is only slower.
  bool was_called(uint64_t call) const {
    return calls_[call % kCalls].load(std::memory_order_relaxed) == call;
  }
  void note_call(uint64_t call) {
    if (call != 0) calls_[call % kCalls].store(call, std::memory_order_relaxed);
  }

 private:
  static constexpr uint32_t kSlots = 2 * kMost;
  static constexpr uint32_t kCalls = 1024;
  std::atomic<uint64_t> places_[kSlots] = {};
  std::atomic<uint64_t> calls_[kCalls] = {};
  std::atomic<uint32_t> count_{0};
  std::atomic<bool> full_{false};
};

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
};

}  // namespace cudaguard

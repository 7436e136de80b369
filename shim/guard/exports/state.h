// SPDX-License-Identifier: Apache-2.0
// The state of exports/ (see shim/guard/state/process.h).
#pragma once

#include <atomic>
#include <cstdint>

namespace [[gnu::visibility("hidden")]] cudaguard {

/// A cache of next definitions for calls that are made in loops.
class Answers {
 public:
  /// True if a valid answer exists for this caller and this name, which is a constant. `age` is
  /// HookInherited::answers_age.
  [[gnu::always_inline]] bool know(const char* name, const void* caller, uint32_t age,
                                   void*& target) const {
    const Answer& answer = answers_[slot_of(name, caller)];
    const uint64_t stamp = answer.stamp.load(std::memory_order_acquire);
    if ((stamp ^ uint64_t{age} << 32) >> 32 != 0 ||
        answer.caller.load(std::memory_order_relaxed) != caller ||
        answer.name.load(std::memory_order_relaxed) != name) {
      return false;
    }
    target = answer.target.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    return answer.stamp.load(std::memory_order_relaxed) == stamp;
  }

  /// Keeps the result of a search that began when the age was `age`.
  void keep(const char* name, const void* caller, void* target, uint32_t age);

 private:
  [[gnu::always_inline]] static unsigned slot_of(const char* name, const void* caller) {
    // Callers that a compiler made alike lie at equal distances, so the upper bits distinguish
    // them.
    return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(caller) ^
                                 reinterpret_cast<uintptr_t>(name)) *
               0x9e3779b9 >>
           (32 - kBits);
  }

  /// A sequence lock that never waits: a reader that finds a stamp of another age, or sees the
  /// stamp change, searches. The upper half of the stamp is the age, or kWriting during a write;
  /// the lower half counts.
  struct Answer {
    std::atomic<uint64_t> stamp;
    std::atomic<const void*> caller;
    std::atomic<const char*> name;
    std::atomic<void*> target;
  };
  static constexpr uint64_t kWriting = uint64_t{0xffffffff} << 32;
  static constexpr unsigned kBits = 8;
  Answer answers_[1U << kBits];
};

struct ExportsProcess {
  /// Devices 0 to 63 that were selected successfully, one bit each.
  std::atomic<uint64_t> selected{0};
  std::atomic<int> device_count{0};  ///< the runtime's answer when CLAMP asked; 0: not yet
  Answers answers;
};

}  // namespace cudaguard

// SPDX-License-Identifier: Apache-2.0
// A cache of next definitions for calls that are made in loops. It is part of Process, whose pages
// are empty in a forked child.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/state/inherited.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// Call this before a request for a library goes on. Only such a request can put other code at a
/// caller's address.
void libraries_may_change(const char* name, int mode);

/// Returns what `caller` would have reached without us (find_definition), with the libraries that
/// were opened so far.
const void* definition_for(const char* name, const void* caller);

class Answers {
 public:
  /// True if a valid answer exists for this caller and this name, which is a constant.
  [[gnu::always_inline]] bool know(const char* name, const void* caller, void*& target) const {
    const Answer& it = answers_[place_of(name, caller)];
    const uint64_t stamp = it.stamp.load(std::memory_order_acquire);
    if (stamp >> 32 != inherited.answers_age.load(std::memory_order_relaxed) ||
        it.caller.load(std::memory_order_relaxed) != caller ||
        it.name.load(std::memory_order_relaxed) != name) {
      return false;
    }
    target = it.target.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    return it.stamp.load(std::memory_order_relaxed) == stamp;
  }

  /// Keeps the result of a search that began when answers_age was `age`.
  void keep(const char* name, const void* caller, void* target, uint32_t age);

 private:
  [[gnu::always_inline]] static unsigned place_of(const char* name, const void* caller) {
    // Callers that a compiler made alike lie at equal distances, so the upper bits distinguish
    // them.
    return static_cast<unsigned>(
        (reinterpret_cast<uintptr_t>(caller) ^ reinterpret_cast<uintptr_t>(name)) *
            0x9e3779b97f4a7c15 >>
        (64 - kBits));
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

}  // namespace cudaguard

// SPDX-License-Identifier: Apache-2.0
// Where calls that are made in loops went before. Part of Process, whose pages a forked child finds
// empty.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/state/lasting.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// Before a request for a library goes on: to find other code at a caller's address takes one.
void libraries_may_change(const char* name, int mode);

/// What `caller` would have reached without us (find_definition), with what was opened so far.
const void* definition_for(const char* name, const void* caller);

class Answers {
 public:
  using Search = const void*(const char* name, const void* caller);

  /// What `search` said to this name (a constant) and caller, if it was not null.
  void* find(const char* name, const void* caller, Search* search);

  /// The same, or null where it would search.
  [[gnu::always_inline]] void* known(const char* name, const void* caller) const {
    const Answer& it = answers_[place_of(name, caller)];
    const uint32_t version = it.version.load(std::memory_order_acquire);
    if (version % 2 != 0 || it.caller.load(std::memory_order_relaxed) != caller ||
        it.name.load(std::memory_order_relaxed) != name ||
        it.requests.load(std::memory_order_relaxed) !=
            lasting.library_requests.load(std::memory_order_relaxed)) {
      return nullptr;
    }
    void* target = it.target.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    return it.version.load(std::memory_order_relaxed) == version ? target : nullptr;
  }

 private:
  [[gnu::always_inline]] static unsigned place_of(const char* name, const void* caller) {
    // Callers that a compiler made alike lie at equal distances: the upper bits tell them apart.
    return static_cast<unsigned>(
        (reinterpret_cast<uintptr_t>(caller) ^ reinterpret_cast<uintptr_t>(name)) *
            0x9e3779b97f4a7c15 >>
        (64 - kBits));
  }

  /// A sequence lock that never waits: who finds a `version` that is odd, or has changed, searches.
  struct Answer {
    std::atomic<uint32_t> version;
    std::atomic<const void*> caller;
    std::atomic<const char*> name;
    std::atomic<uint64_t> requests;  ///< before
    std::atomic<void*> target;
  };
  static constexpr unsigned kBits = 8;
  Answer answers_[1U << kBits];
};

}  // namespace cudaguard

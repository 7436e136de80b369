// SPDX-License-Identifier: Apache-2.0
// Where calls that are made in loops went before. Part of Process, whose pages a forked child finds
// empty.
#pragma once

#include <atomic>
#include <cstdint>

namespace [[gnu::visibility("hidden")]] cudaguard {

namespace detail {
extern constinit std::atomic<uint64_t>
    library_requests;  // NOLINT(bugprone-dynamic-static-initializers): constinit
}

/// Before a request for a library: to find other code at a caller's address takes one.
inline void answers_are_old() { detail::library_requests.fetch_add(1, std::memory_order_release); }

class Answers {
 public:
  using Search = const void*(const char* name, const void* caller);

  /// What `search` said to this name (a constant) and caller, if it was not null.
  void* find(const char* name, const void* caller, Search* search);

 private:
  /// A sequence lock that never waits: who finds a `version` that is odd, or has changed, searches.
  struct Answer {
    std::atomic<uint32_t> version;
    std::atomic<const void*> caller;
    std::atomic<const char*> name;
    std::atomic<uint64_t> requests;  ///< before
    std::atomic<void*> target;
  };
  Answer answers_[64];
};

}  // namespace cudaguard

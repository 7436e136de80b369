// SPDX-License-Identifier: Apache-2.0
// The definition that a caller would have reached if the guard did not export that name: of the
// file that its import names (the runtime's symbols are versioned), else of the program's own
// scope, else of the caller's library. Two majors of the CUDA runtime may live in one process, and
// TensorFlow exports `cu*` trampolines of its own, so "the next one" is wrong (design.md;
// frameworks.md 1.1).
#pragma once

#include <atomic>
#include <cstdint>

namespace [[gnu::visibility("hidden")]] cudaguard {

/// `name` must be a constant. Null if there is no other definition. Remembers the answer until the
/// next request for a library (libraries_may_change): to find code of another library at a caller's
/// address takes one. Thread-safe; takes the lock of dl_iterate_phdr, not the one that a thread in
/// dlopen holds; changes neither errno nor dlerror.
void* definition_for(const char* name, const void* caller);

/// The definition of `name` in the library that holds `function`, or null.
const void* definition_beside(const void* function, const char* name);

namespace detail {
extern constinit std::atomic<uint64_t>
    library_requests;  // NOLINT(bugprone-dynamic-static-initializers): constinit
}

/// Called by the hooks before a request goes on. Not an atomic addition, which would cost 5 ns: of
/// two threads that race one may be lost, and the number has changed all the same.
inline void libraries_may_change() {
  detail::library_requests.store(detail::library_requests.load(std::memory_order_relaxed) + 1,
                                 std::memory_order_release);
}

}  // namespace cudaguard

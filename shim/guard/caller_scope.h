// SPDX-License-Identifier: Apache-2.0
// The definition that a caller would have reached if the guard did not export that name: of the
// file that its import names (the runtime's symbols are versioned), else of the program's own
// scope, else of the caller's library. Two majors of the CUDA runtime may live in one process, and
// TensorFlow exports `cu*` trampolines of its own, so "the next one" is wrong (design.md;
// frameworks.md 1.1).
#pragma once

namespace [[gnu::visibility("hidden")]] cudaguard {

/// `name` must be a constant. Null if there is no other definition. Remembers the answer until a
/// library is loaded or unloaded. Thread-safe; takes the lock of dl_iterate_phdr, not the one that
/// a thread in dlopen holds; changes neither errno nor dlerror.
void* definition_for(const char* name, const void* caller);

}  // namespace cudaguard

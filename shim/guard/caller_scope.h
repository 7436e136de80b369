// SPDX-License-Identifier: Apache-2.0
// The definition that a caller would have reached if the guard did not export that name: first the
// program's own scope behind the guard, then the scope of the caller's library. Two majors of the
// CUDA runtime may live in one process, and TensorFlow exports `cu*` trampolines of its own, so
// "the next one" alone is wrong (design.md; frameworks.md 1.1).
#pragma once

namespace [[gnu::visibility("hidden")]] cudaguard {

/// `name` must be a constant. Null if there is no other definition. Remembers the answer until a
/// library is loaded or unloaded. A call in tail position shows its caller's caller: where that
/// one's scope has no definition, the first loaded one is taken. Thread-safe; takes the loader's
/// lock; may clear a pending dlerror.
void* definition_for(const char* name, const void* caller);

}  // namespace cudaguard

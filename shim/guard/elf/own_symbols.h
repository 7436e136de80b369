// SPDX-License-Identifier: Apache-2.0
// Changes the symbol table of the object that holds this code. After a name is hidden, look-ups do
// not find it; earlier bindings stay. Thread-safe: a simultaneous look-up finds the name or does
// not.
#pragma once

#include <link.h>

namespace [[gnu::visibility("hidden")]] cudaguard {

/// Returns the load address of the object that holds this code.
ElfW(Addr) own_base();

/// True for the names to be hidden.
using NameFilter = bool (*)(const char* name, const void* context);

/// Returns false if the kernel forbids the write; nothing has changed then. The table's pages must
/// hold no code, because they are writable for a moment and not executable.
bool hide_own_symbols(NameFilter filter, const void* context);

/// True if the object refers to a name that this library defines and the filter accepts.
bool refers_to_own_symbols(const ElfW(Dyn) * dynamic, ElfW(Addr) base, NameFilter filter,
                           const void* context);

}  // namespace cudaguard

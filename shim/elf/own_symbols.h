// SPDX-License-Identifier: Apache-2.0
// The symbol table of the object that holds this code: names that are taken out of it are not found
// by look-ups from then on; what was bound before stays bound. Thread-safe: a look-up beside it
// finds a name or does not.
#pragma once

#include <link.h>

namespace [[gnu::visibility("hidden")]] cudaguard {

/// True for the names to be taken out.
using NameFilter = bool (*)(const char* name, const void* context);

/// False: the kernel forbids to write there; nothing has changed. The object must be linked with
/// -z separate-code: the table's pages are writable for a moment, and must not hold code.
bool hide_own_symbols(NameFilter filter, const void* context);

/// Does this object refer to such a name, of those that this one defines?
bool refers_to_own_symbols(const ElfW(Dyn) * dynamic, ElfW(Addr) base, NameFilter filter,
                           const void* context);

}  // namespace cudaguard

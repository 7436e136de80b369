// SPDX-License-Identifier: Apache-2.0
// Reads the names that an ELF file exports and references. As careful as elf_file.h.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "shim/launcher/elf/elf_file.h"

namespace cudaguard::launcher {

enum class Exports { kAll, kVariables };

/// Adds the names that other files can be bound to. Returns false if the tables are damaged, but
/// keeps the names that were read before.
bool read_exports(const Bytes& file, std::set<std::string>& names, Exports which = Exports::kAll);

enum class References {
  kAll,
  kCopies,  ///< library variables that the executable has a copy of
};

/// Adds the names that ld.so looks up to relocate the file. Returns false as above.
bool read_references(const Bytes& file, std::set<std::string>& names,
                     References which = References::kAll);

}  // namespace cudaguard::launcher

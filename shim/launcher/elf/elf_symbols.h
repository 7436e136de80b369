// SPDX-License-Identifier: Apache-2.0
// What an ELF file offers to others by name, and what it asks of them. As careful as elf_file.h.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "shim/launcher/elf/elf_file.h"

namespace cudaguard::launcher {

enum class Exports { kAll, kVariables };

/// Adds the names that other files are bound to. False: the tables are damaged; what was read
/// before is there.
bool read_exports(const Bytes& file, std::set<std::string>& names, Exports which = Exports::kAll);

enum class References {
  kAll,
  kCopies,  ///< variables of libraries of which the executable has a copy
};

/// Adds the names that ld.so looks up when it relocates the file. False: likewise.
bool read_references(const Bytes& file, std::set<std::string>& names,
                     References which = References::kAll);

}  // namespace cudaguard::launcher

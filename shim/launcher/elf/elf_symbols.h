// SPDX-License-Identifier: Apache-2.0
// What an ELF file offers to others and asks of them by name. As careful as elf_file.h.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "shim/launcher/elf/elf_file.h"

namespace cudaguard::launcher {

struct Export {
  std::string name;
  bool variable = false;  ///< else a function, or of no type
};

/// The dynamic symbols that other files are bound to. False: the tables are damaged; what was read
/// before is there.
bool read_exports(const Bytes& file, std::vector<Export>& exports);

struct Reference {
  std::string name;
  bool copy = false;  ///< the executable has a copy of another file's variable
};

/// The relocations against these names, but for those that only calls go by. False: as above.
bool read_references(const Bytes& file, const std::set<std::string>& names,
                     std::vector<Reference>& references);

}  // namespace cudaguard::launcher

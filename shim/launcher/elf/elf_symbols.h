// SPDX-License-Identifier: Apache-2.0
// What an ELF file offers to others by name. As careful as elf_file.h.
#pragma once

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

}  // namespace cudaguard::launcher

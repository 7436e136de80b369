// SPDX-License-Identifier: Apache-2.0
// Names frames by the files that they are in. The files are untrusted.
#pragma once

#include <map>
#include <string>

#include "shim/launcher/elf/elf_symbols.h"
#include "shim/launcher/findings/stack.h"

namespace cudaguard::launcher {

struct Findings;

/// Reads each file once.
class Symbols {
 public:
  /// The function that has the instruction before this return address, from .symtab, otherwise
  /// .dynsym. A name of C++ is demangled, one of Rust is not. Empty if there is none, or the file
  /// cannot be read.
  std::string name_of(const NativeFrame& frame);

 private:
  struct File {
    explicit File(const std::string& path) : bytes(path), functions(bytes) {}
    FileBytes bytes;
    ElfFunctions functions;
  };
  std::map<std::string, File> files_;
};

/// Sets the members of the frames that say "by name_frames()", and gives each site without
/// Python frames the line of its own native frame: "app.cpp:12". Call this before decide(), which
/// groups by these lines.
///
/// For the lines of native code it runs addr2line of binutils, if `search` (PATH, or null) has it,
/// because this static executable cannot load a DWARF library. A damaged file can at most end or
/// delay that process. A file that has changed since its frames were recorded has no lines.
void name_frames(Findings& findings, const char* search);

}  // namespace cudaguard::launcher

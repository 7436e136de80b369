// SPDX-License-Identifier: Apache-2.0
// Which file is started, and which executables run in the end: PATH, "#!" lines, `env`.
#pragma once

#include <string>
#include <vector>

#include "shim/launcher/elf/elf_file.h"

namespace cudaguard::launcher {

/// Runs a script that begins with no "#!" line.
inline constexpr char kShell[] = "/bin/sh";

/// An ELF file that will run in the program's process.
struct Executable {
  std::string path;
  ElfFacts facts;
};

struct Program {
  std::string path;                     ///< for execve
  bool by_shell = false;                ///< which gives ENOEXEC: /bin/sh is started with it instead
  std::vector<std::string> files;       ///< every file of the chain, `path` first
  std::vector<Executable> executables;  ///< the last is the one that stays
  std::string env_words;                ///< what "#!.../env" is given, where it is not plain
  bool env_clears = false;              ///< and has LD_PRELOAD taken away by
  std::string not_read;                 ///< why the last file was not: no descriptor is left
};

/// `name` as a shell would look it up; `search`: PATH, or null. Throws Refusal with 126 or 127.
Program find_program(const std::string& name, const char* search);

}  // namespace cudaguard::launcher

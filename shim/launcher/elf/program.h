// SPDX-License-Identifier: Apache-2.0
// Finds the file that is started and the executables that finally run: PATH, "#!" lines, `env`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shim/launcher/elf/elf_file.h"

namespace cudaguard::launcher {

/// Runs a script that has no "#!" line.
inline constexpr char kShell[] = "/bin/sh";

/// An ELF file that will run in the program's process.
struct Executable {
  std::string path;
  ElfFacts facts;
};

struct Program {
  std::string path;                     ///< for execve
  bool by_shell = false;                ///< if execve gives ENOEXEC, /bin/sh is started with `path`
  std::vector<std::string> files;       ///< every file of the chain, `path` first
  std::vector<Executable> executables;  ///< the last one keeps running
  std::string env_words;                ///< the argument of "#!.../env", if it is not plain
  std::string not_read;                 ///< why the last file was not read; empty if it was
  bool unknown = false;                 ///< only the kernel may know what starts the last file
};

/// Looks up `name` like a shell; `search` is PATH, or null. Throws Refusal with 126 or 127.
Program find_program(const std::string& name, const char* search);

/// The beginning of a file, as much as the kernel reads of a "#!" line; empty if that fails.
std::string read_head(const FileBytes& file);

/// The kernel's limit of scripts, each the interpreter of the one before.
inline constexpr int kMostScripts = 5;

/// A "#!" line, as the kernel reads it.
struct ScriptLine {
  std::string interpreter;  ///< empty if there is no such line
  std::string argument;     ///< one word, including blanks
};
ScriptLine read_script(std::string_view head);

/// The program that the line "#!/usr/bin/env ARGUMENT" starts: "python3", also for
/// "-S VAR=x python3 -u". Empty if the line is not that simple: env's options may start another
/// program, or remove LD_PRELOAD.
std::string started_by_env(std::string_view argument);

}  // namespace cudaguard::launcher

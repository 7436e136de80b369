// SPDX-License-Identifier: Apache-2.0
// What can be seen of a program without starting it.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "shim/launcher/child/variables.h"
#include "shim/launcher/doctor/own_names.h"
#include "shim/launcher/elf/program.h"
#include "shim/launcher/preload/installation.h"
#include "shim/launcher/preload/verdict.h"

namespace cudaguard::launcher {

/// A library of NVIDIA's that ld.so loads with the program.
struct LinkedLibrary {
  std::string name;                    ///< as it is asked for
  std::string path;                    ///< where ld.so finds it; empty: nowhere
  std::vector<std::string> needed_by;  ///< files
};

struct RuntimeFact {
  std::string file;     ///< that it is, or is in; empty: not found
  std::string name;     ///< "libcudart.so.12"; empty: static
  std::string version;  ///< empty: not known
};

struct DriverCopy {
  std::string path;
  std::string of;  ///< the file whose run path leads there
};

struct Sanitizer {
  std::string kind;  ///< "address"
  std::string name;  ///< "libasan.so.8"; empty: static
  std::string path;  ///< empty: static, or not found
};

struct ExecutableFacts {
  Executable executable;
  Examined examined;
  bool setuid = false;
  bool setgid = false;
  bool capabilities = false;
  bool links_driver = false;  ///< libcuda, itself or through a library
  bool links_nvml = false;
  std::vector<LinkedLibrary> linked;   ///< driver, NVML, NVIDIA's OpenCL
  std::vector<std::string> mapped;     ///< of these, although `run` preloads the stand-ins
  std::vector<std::string> not_found;  ///< libraries without which it does not start
  std::vector<RuntimeFact> runtimes;
  std::vector<DriverCopy> copies;
  std::vector<OwnName> names;
  std::vector<Sanitizer> sanitizers;

  /// ld.so was asked; a privileged program's ignores LD_PRELOAD.
  bool loads_guard() const { return examined.answer && examined.hindrances.empty(); }
  /// Its own dlopen is a static sanitizer's, which goes on to the next one: the guard's.
  bool intercepts() const {
    return std::any_of(sanitizers.begin(), sanitizers.end(), [](const Sanitizer& sanitizer) {
      return sanitizer.name.empty() && sanitizer.kind != "undefined";
    });
  }
};

/// A file of the installation that is missing or cannot be used.
struct BrokenFile {
  std::string path;
  bool missing = false;  ///< else damaged, or of another version
  const char* why() const {
    return missing ? "is missing or cannot be read" : "is damaged or of another version";
  }
};

struct ProgramFacts {
  std::string name;  ///< as it was given
  Program program;
  std::vector<ExecutableFacts> executables;  ///< the last is the one that stays
  bool script_preloads = false;              ///< a script says LD_PRELOAD itself
  bool off = false;                          ///< by CUDAGUARD_POLICY, which `run` goes by
  std::vector<BrokenFile> broken;
};

/// Throws Refusal where there is no such program.
ProgramFacts find_program_facts(const std::string& name, const Installation& installation,
                                const Variables& variables);

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
// The three questions. Each is answered in one file, which adds what it finds to the list and
// returns its part of the first line. None starts anything of the user's.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "policy/config.h"
#include "shim/launcher/child/child.h"
#include "shim/launcher/child/variables.h"
#include "shim/launcher/doctor/findings.h"
#include "shim/launcher/fence/fence.h"
#include "shim/launcher/preload/installation.h"

namespace cudaguard::launcher {

inline constexpr char kGuardName[] = "libcudaguard.so";

/// A file of this installation.
struct OwnFile {
  std::string path;
  bool null_driver = false;  ///< the file is one, or a link to one
  std::string trouble;       ///< a clause: "is damaged ..."; empty: the file is well
};

/// What ld.so finds for libraries' names.
struct Libraries {
  /// libcuda.so.1, libcuda.so, libnvidia-ml.so.1, libnvidia-opencl.so.1 and their paths; empty:
  /// there is none. From the first name on that ld.so gave no answer for, they are left out.
  std::vector<std::pair<std::string, std::string>> found;
  std::string guard_by_bare_name;  ///< what LD_PRELOAD=libcudaguard.so gives; empty: nothing
  std::string system_guard;        ///< the guard that /etc/ld.so.preload has
  std::string trouble;             ///< why ld.so could not be asked, or hangs: a clause
  bool hangs = false;              ///< ld.so does
};

struct Machine {
  const Variables& variables;  ///< doctor's own environment
  const Installation installation;
  const Fence fence;  ///< what can be had here, or holds already
  const std::vector<OwnFile> own_files;
  const std::chrono::seconds limit;  ///< for each answer of ld.so, and for the driver's
};

/// What the guard makes of this environment. Its strings are `variables`' own.
Config config_of(const Variables& variables);
/// The guard is the first of them, doctor's probe the last.
std::vector<OwnFile> look_at_own_files(const Installation& installation);
Libraries find_libraries(const Machine& machine);

/// "guarded: yes". Throws Refusal if there is no such program (126, 127).
std::string ask_program(const std::string& name, const Machine& machine, FindingList& findings);

/// "installed: yes; active here: no".
std::string ask_installed(const Machine& machine, const Libraries& libraries,
                          FindingList& findings);
/// The part of it that looks at CUDAGUARD_* alone.
void judge_variables(Variables variables, FindingList& findings);

/// "driver: answers".
std::string ask_driver(const Machine& machine, const Libraries& libraries, FindingList& findings);
/// The part of it that comes after the end of the process that asked, `probe`.
std::string judge_answer(const ChildEnd& end, const std::string& probe, std::chrono::seconds limit,
                         FindingList& findings);

}  // namespace cudaguard::launcher

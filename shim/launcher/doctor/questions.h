// SPDX-License-Identifier: Apache-2.0
// The three questions. One file answers each: it adds findings to the list and returns its part of
// the first line. None starts a program of the user.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "policy/config.h"
#include "shim/launcher/child/variables.h"
#include "shim/launcher/doctor/findings.h"
#include "shim/launcher/fence/fence.h"
#include "shim/launcher/health/ask_cuda.h"
#include "shim/launcher/preload/installation.h"

namespace cudaguard::launcher {

inline constexpr char kGuardName[] = "libcudaguard.so";

/// A file of this installation.
struct OwnFile {
  std::string path;
  bool null_driver = false;  ///< the file is a null driver, or a link to one
  std::string trouble;       ///< a clause: "is damaged ..."; empty if the file is sound
};

/// The files that ld.so finds by name.
struct Libraries {
  /// libcuda.so.1, libcuda.so, libnvidia-ml.so.1, libnvidia-opencl.so.1 and their paths; an empty
  /// path means not found. Ends before the first name for which ld.so gave no answer.
  std::vector<std::pair<std::string, std::string>> found;
  std::string guard_by_bare_name;  ///< the file that LD_PRELOAD=libcudaguard.so loads; empty: none
  std::string system_guard;        ///< the guard named by /etc/ld.so.preload
  std::string trouble;             ///< why ld.so could not answer, or hangs: a clause
  bool hangs = false;              ///< ld.so hangs
};

struct Machine {
  const Variables& variables;  ///< doctor's own environment
  const Installation installation;
  const Fence fence;  ///< the fence that is possible here, or holds already
  const std::vector<OwnFile> own_files;
  const std::chrono::seconds limit;  ///< for each answer of ld.so, and for the driver's
};

/// The guard's configuration in this environment. Its strings belong to `variables`.
Config config_of(const Variables& variables);
/// Returns the guard first and doctor's probe last.
std::vector<OwnFile> look_at_own_files(const Installation& installation);
Libraries find_libraries(const Machine& machine);

/// Returns "guarded: yes". Throws Refusal if there is no such program (126, 127).
std::string ask_program(const std::string& name, const Machine& machine, FindingList& findings);

/// Returns "installed: yes; active here: no".
std::string ask_installed(const Machine& machine, const Libraries& libraries,
                          FindingList& findings);
/// The part of ask_installed() that examines CUDAGUARD_* alone.
void judge_variables(Variables variables, FindingList& findings);

/// Returns "driver: answers".
std::string ask_driver(const Machine& machine, const Libraries& libraries, FindingList& findings);
/// The part of ask_driver() that judges the driver's answer.
std::string judge_answer(const DriverAnswer& answer, std::chrono::seconds limit,
                         FindingList& findings);

}  // namespace cudaguard::launcher

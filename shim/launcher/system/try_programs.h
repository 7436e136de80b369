// SPDX-License-Identifier: Apache-2.0
// Starts programs with the guard before every program of the machine gets it.
#pragma once

#include <string>
#include <vector>

namespace cudaguard::launcher {

struct TriedProgram {
  std::string path;
  std::string why_not;  ///< a clause: why it is not guarded; empty if it is
};

/// Starts the shell, ls, sshd and others, without the guard and with it. Throws Refusal if one of
/// them behaves in another way, does not load the guard, or if none can be guarded.
std::vector<TriedProgram> try_programs(const std::string& guard);

}  // namespace cudaguard::launcher

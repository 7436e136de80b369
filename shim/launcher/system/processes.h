// SPDX-License-Identifier: Apache-2.0
// Lists which processes of the machine have which guard.
#pragma once

#include <string>
#include <vector>

namespace cudaguard::launcher {

struct ProcessGroup {
  std::string what;                    ///< "guarded by version 0.2.0", "not guarded: it is ..."
  bool due = false;                    ///< a restart would change that
  std::vector<std::string> processes;  ///< "cron (812)"
};

/// Groups all processes except this one. `named` are the guards in /etc/ld.so.preload.
std::vector<ProcessGroup> look_at_processes(const std::vector<std::string>& named);

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
// Runs a child process that may hang, crash or refuse to die: ld.so, a broken driver.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "shim/launcher/child/variables.h"
#include "shim/launcher/message.h"

namespace cudaguard::launcher {

/// No process or descriptor is available. A check may then be left out.
class Shortage : public Refusal {
 public:
  explicit Shortage(const std::string& reason) : Refusal(kRefused, reason) {}
};

struct ChildEnd {
  int not_started = 0;  ///< errno; kHeldBack: `before` returned false; 0: it was started
  bool in_time = false;
  pid_t stuck = 0;  ///< the child's id if SIGKILL does not end it
  int status = 0;   ///< as from waitpid
  std::string out;  ///< the child's output
  std::string err;
};
inline constexpr int kHeldBack = -1;

/// Duplicates `fd` to a number above 2. Returns -1 and errno on failure. If 0 to 2 were closed at
/// our start, `fd` may have such a number, which belongs to the program.
int above_stderr(int fd);

/// Starts words[0], a path, and collects its output until it ends or `patience` is over. Then kills
/// the rest of its process group. The child cannot read input, leaves no core file, and dies with
/// us. It inherits our caller's descriptors, because words may name one (/dev/fd/9). `before` runs
/// in the child. Throws Shortage if no process can be created.
ChildEnd run_child(std::vector<std::string> words, Variables variables,
                   std::chrono::milliseconds patience, bool (*before)() = nullptr);

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
// A child process that may hang, crash, or refuse to die: ld.so, a sick driver.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "shim/launcher/child/variables.h"
#include "shim/launcher/message.h"

namespace cudaguard::launcher {

/// A process or a descriptor cannot be had; a check can do without.
class Shortage : public Refusal {
 public:
  explicit Shortage(const std::string& reason) : Refusal(kRefused, reason) {}
};

struct ChildEnd {
  int not_started = 0;  ///< errno; kHeldBack: `before` said no; 0: it was started
  bool in_time = false;
  pid_t stuck = 0;  ///< its id, where it does not die of SIGKILL
  int status = 0;   ///< waitpid's
  std::string out;  ///< what it wrote
  std::string err;
};
inline constexpr int kHeldBack = -1;

/// The same at a number above 2, or -1 and errno. Where 0 to 2 were closed when we were started,
/// one of them may be its number, and these are the program's.
int above_stderr(int fd);

/// Starts words[0], a path, and gathers what it writes until it has ended or `patience` is over;
/// then kills what is left of its process group. It has nothing to read, leaves no core, and dies
/// with us; the descriptors that we were given it has too: words may name one (/dev/fd/9). `before`
/// runs in the child. Throws Shortage where there can be no process.
ChildEnd run_child(std::vector<std::string> words, Variables variables,
                   std::chrono::milliseconds patience, bool (*before)() = nullptr);

}  // namespace cudaguard::launcher

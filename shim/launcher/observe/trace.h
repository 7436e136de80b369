// SPDX-License-Identifier: Apache-2.0
// Follows the program and all that it starts by ptrace, and tells of every execve. Of nothing else:
// signals and stops go their way. What must itself trace fails inside (strace, gdb), and setuid
// programs get no privileges.
#pragma once

#include <sys/types.h>
#include <sys/wait.h>

#include <functional>
#include <optional>

namespace cudaguard::launcher {

class Trace {
 public:
  /// `at_exec` is called while the process stands at the end of execve, before its first
  /// instruction. Throws Refusal.
  explicit Trace(std::function<void(pid_t)> at_exec);

  /// In the child: until it is followed.
  void hold() const;
  /// In the parent. Throws Refusal where this system does not allow it.
  void follow(pid_t child) const;

  /// Threads too. Not WCONTINUED: a tracer that asks for that takes it away from the parent.
  static constexpr int kWaitFor = __WALL;
  /// Of each status that waitpid gives. Returns what it would be without ptrace;
  /// none: nothing has happened.
  std::optional<int> take(pid_t pid, int status);

 private:
  std::function<void(pid_t)> at_exec_;
  int gate_[2] = {};
};

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
// Follows the program and its descendants by ptrace and reports every execve. Signals and stops
// work as usual. Programs that use ptrace themselves (strace, gdb) fail under it, and setuid
// programs get no privileges.
#pragma once

#include <sys/types.h>
#include <sys/wait.h>

#include <functional>
#include <optional>

namespace cudaguard::launcher {

class Trace {
 public:
  /// `at_exec` is called while the process is at the end of execve, before its first
  /// instruction. Throws Refusal.
  explicit Trace(std::function<void(pid_t)> at_exec);

  /// Call this in the child: waits until the parent follows it.
  void hold() const;
  /// Call this in the parent. Throws Refusal if this system does not allow ptrace.
  void follow(pid_t child) const;

  /// Includes threads, but not WCONTINUED, which would take the event away from the parent.
  static constexpr int kWaitFor = __WALL;
  /// Call this with each status from waitpid. Returns the status without ptrace; nothing if only
  /// ptrace caused it.
  std::optional<int> take(pid_t pid, int status);

 private:
  std::function<void(pid_t)> at_exec_;
  int gate_[2] = {};
};

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
// Follows a program and its descendants by ptrace and reports every execve. Signals and stops work
// as usual. Programs that use ptrace themselves (strace, gdb) fail under it, and setuid programs
// get no privileges.
#pragma once

#include <sys/types.h>
#include <sys/wait.h>

#include <functional>
#include <optional>

namespace cudaguard::launcher {

/// Throws Refusal if this system does not allow ptrace.
void follow(pid_t child);

/// Options for waitpid. Include threads, but not WCONTINUED, which would take the event away from
/// the parent.
inline constexpr int kWaitForTraced = __WALL;
/// The status from waitpid as it is without ptrace; nothing if only ptrace caused it. Calls
/// `at_exec` while the process is at the end of execve, before its first instruction.
std::optional<int> untraced(pid_t pid, int status, const std::function<void(pid_t)>& at_exec);

}  // namespace cudaguard::launcher

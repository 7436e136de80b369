// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/observe/trace.h"

#include <sys/ptrace.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <string>

#include "shim/launcher/message.h"

namespace cudaguard::launcher {

namespace {

// Threads are followed as well, because each can start programs.
constexpr unsigned long kEvents =
    PTRACE_O_TRACEEXEC | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE;

/// The status for which WIFCONTINUED is true.
constexpr int kContinued = 0xffff;

/// Fails if the thread was killed meanwhile; waitpid then reports its end.
void resume(pid_t pid, int signal) {
  ptrace(PTRACE_CONT, pid, nullptr, reinterpret_cast<void*>(static_cast<intptr_t>(signal)));
}

}  // namespace

void follow(pid_t child) {
  if (ptrace(PTRACE_SEIZE, child, nullptr, reinterpret_cast<void*>(kEvents)) != 0) {
    throw Refusal(kRefused,
                  std::string("--trace: ptrace: ") + strerror(errno) +
                      " (forbidden by this system, or this command is traced already); leave "
                      "--trace out to sample the tree");
  }
}

std::optional<int> untraced(pid_t pid, int status, const std::function<void(pid_t)>& at_exec) {
  if (!WIFSTOPPED(status)) return status;
  const int number = WSTOPSIG(status);
  switch (status >> 16) {
    case 0:  // a signal is about to be delivered
      resume(pid, number);
      return {};
    case PTRACE_EVENT_STOP:
      if (number == SIGTRAP) {  // a new process, or a stopped one that continues
        resume(pid, 0);
        return kContinued;
      }
      // The whole process has stopped; SIGCONT lets it continue.
      ptrace(PTRACE_LISTEN, pid, nullptr, nullptr);
      return status & 0xffff;
    case PTRACE_EVENT_EXEC:
      at_exec(pid);
      break;
    default:
      break;
  }
  resume(pid, 0);
  return {};
}

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/observe/trace.h"

#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>
#include <utility>

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

Trace::Trace(std::function<void(pid_t)> at_exec) : at_exec_(std::move(at_exec)) {
  if (pipe2(gate_, O_CLOEXEC) != 0) {
    throw Refusal(kRefused, std::string("--trace: ") + strerror(errno));
  }
}

void Trace::hold() const {
  close(gate_[1]);
  char byte = 0;
  if (read(gate_[0], &byte, 1) != 1) _exit(kRefused);
  close(gate_[0]);
}

void Trace::follow(pid_t child) const {
  if (ptrace(PTRACE_SEIZE, child, nullptr, reinterpret_cast<void*>(kEvents)) != 0) {
    throw Refusal(kRefused,
                  std::string("--trace: ptrace: ") + strerror(errno) +
                      " (forbidden by this system, or this command is traced already); leave "
                      "--trace out to sample the tree");
  }
  close(gate_[0]);
  const bool opened = write(gate_[1], "", 1) == 1;
  close(gate_[1]);
  if (!opened) throw Refusal(kRefused, "--trace: the program was killed before it began");
}

std::optional<int> Trace::take(pid_t pid, int status) {
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
      at_exec_(pid);
      break;
    default:
      break;
  }
  resume(pid, 0);
  return {};
}

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
// Runs a program under ptrace until one of its threads stops with SIGUSR1.
#pragma once

#include <elf.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim/launcher/unwind/call_frame.h"

/// Returns the thread that got the signal, 0 if the program exited with 77 because it cannot run
/// here, or -1 if it ended in another way. The program and its threads die with this process.
inline pid_t run_until_signal(char** words) {
  const pid_t child = fork();
  if (child == 0) {
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    execv(words[0], words);
    _exit(127);
  }
  constexpr long kOptions =
      PTRACE_O_EXITKILL | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE;
  bool started = false;
  int status = 0;
  for (pid_t thread = 0; (thread = waitpid(-1, &status, __WALL)) > 0;) {
    if (WIFEXITED(status) && thread == child) return WEXITSTATUS(status) == 77 ? 0 : -1;
    if (!WIFSTOPPED(status)) continue;
    int signal = WSTOPSIG(status);
    if (signal == SIGUSR1) return thread;
    if (!started) ptrace(PTRACE_SETOPTIONS, thread, nullptr, kOptions);
    started = true;
    // These signals mean an exec, a new process or a new thread.
    if (signal == SIGTRAP || signal == SIGSTOP) signal = 0;
    ptrace(PTRACE_CONT, thread, nullptr, signal);
  }
  return -1;
}

inline cudaguard::launcher::Registers registers_of(pid_t thread) {
  cudaguard::launcher::Registers registers;
  user_regs_struct saved = {};
  iovec all = {&saved, sizeof saved};
  ptrace(PTRACE_GETREGSET, thread, NT_PRSTATUS, &all);
#if defined(__x86_64__)
  registers.set(3, saved.rbx);
  registers.set(6, saved.rbp);
  registers.set(7, saved.rsp);
  registers.set(12, saved.r12);
  registers.set(13, saved.r13);
  registers.set(14, saved.r14);
  registers.set(15, saved.r15);
  registers.set(16, saved.rip);
#elif defined(__aarch64__)
  for (unsigned number = 19; number <= 30; ++number) registers.set(number, saved.regs[number]);
  registers.set(31, saved.sp);
  registers.set(32, saved.pc);
#endif
  return registers;
}

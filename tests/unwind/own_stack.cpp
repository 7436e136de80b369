// SPDX-License-Identifier: Apache-2.0
// Makes programs/scenarios.cpp print its own stack at SIGUSR1. This replaces ptrace under
// qemu-user, which does not have it.
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "tests/unwind/printed.h"

namespace {

using namespace cudaguard::launcher;

/// Reads with write(2), which returns EFAULT where a plain read would fault.
class OwnProcess : public ProcessView {
 public:
  OwnProcess() { is_open_ = pipe(pipe_) == 0; }
  bool read(uint64_t address, void* to, size_t size) override {
    constexpr size_t kPart = 4096;  // one part fits into the pipe
    for (auto* out = static_cast<char*>(to); size > 0;) {
      const auto part = static_cast<ssize_t>(size < kPart ? size : kPart);
      const auto* from = reinterpret_cast<const void*>(address);
      if (!is_open_ || write(pipe_[1], from, static_cast<size_t>(part)) != part ||
          ::read(pipe_[0], out, static_cast<size_t>(part)) != part) {
        return false;
      }
      out += part;
      address += static_cast<uint64_t>(part);
      size -= static_cast<size_t>(part);
    }
    return true;
  }
  std::string maps() override { return std::make_unique<WaitingProcess>(getpid())->maps(); }

 private:
  int pipe_[2] = {};
  bool is_open_ = false;
};

void take(int /*number*/, siginfo_t* /*info*/, void* context) {
  const mcontext_t& saved = static_cast<ucontext_t*>(context)->uc_mcontext;
  Registers registers;
  for (unsigned number = 19; number <= 30; ++number) registers.set(number, saved.regs[number]);
  registers.set(31, saved.sp);
  registers.set(32, saved.pc);
  OwnProcess process;
  print_stack(unwind(process, registers), nullptr);
  fflush(stdout);
  _exit(0);
}

[[gnu::constructor]] void start() {
  struct sigaction action = {};
  action.sa_sigaction = take;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGUSR1, &action, nullptr);
}

}  // namespace

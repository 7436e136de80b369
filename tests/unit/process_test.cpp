// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/observe/process.h"

#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <string>

#include "shim/launcher/observe/start.h"
#include "shim/launcher/observe/starts.h"

namespace cudaguard::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// A child process that uses a processor for this long, and waits in pause() afterwards.
class BusyChild {
 public:
  explicit BusyChild(milliseconds time) : pid_(fork()) {
    if (pid_ != 0) return;
    for (const auto end = steady_clock::now() + time; steady_clock::now() < end;) {
    }
    for (;;) pause();
  }
  ~BusyChild() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  BusyChild(const BusyChild&) = delete;
  BusyChild& operator=(const BusyChild&) = delete;

  pid_t pid() const { return pid_; }

 private:
  const pid_t pid_;
};

/// The kernel reports a call to the launcher before the calling thread has gone to sleep.
TEST(WaitingThread, HasRegistersEvenIfItGoesToSleepOnlyNow) {
  const BusyChild child(milliseconds{5});
  EXPECT_TRUE(waiting_at(child.pid()));
}

TEST(WaitingThread, ThreadThatRunsOnHasNoRegisters) {
  const BusyChild child(milliseconds{60'000});
  EXPECT_FALSE(waiting_at(child.pid()));
}

/// Also if the launcher is linked dynamically, as the unit tests are.
TEST(Executables, ChildBeforeItsExecveIsTheLauncher) {
  const BusyChild child(milliseconds{0});
  const std::string file = "/proc/" + std::to_string(child.pid()) + "/exe";
  EXPECT_EQ(Executables().of(file).kind, FileFacts::Kind::kLauncher);
}

/// A child that ends with this code when the object does.
class Child {
 public:
  explicit Child(int code) {
    int both[2] = {-1, -1};
    if (pipe(both) != 0) abort();
    pid_ = fork();
    if (pid_ == 0) {
      close(both[1]);
      char byte = 0;
      _exit(read(both[0], &byte, 1) == 0 ? code : 99);
    }
    close(both[0]);
    end_ = both[1];
  }
  void end() const {
    close(end_);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  int end_ = -1;
};

/// A busy machine can keep a process for some milliseconds between its execve and its first step.
TEST(Loader, IsNotKnownToBeAtWorkBeforeItBegins) {
  const pid_t pid = fork();
  if (pid == 0) {
    if (ptrace(PTRACE_TRACEME, 0, 0, 0) == 0) execl("/bin/true", "true", nullptr);
    _exit(99);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  if (!WIFSTOPPED(status)) GTEST_SKIP() << "no ptrace here";
  EXPECT_EQ(is_in_loader(pid, read_stat(pid)), std::nullopt);
  ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACEEXIT);
  ptrace(PTRACE_CONT, pid, 0, 0);
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
#if defined(__x86_64__)
  EXPECT_EQ(is_in_loader(pid, read_stat(pid)), std::optional(false));  // the program has run
#endif
  ptrace(PTRACE_CONT, pid, 0, 0);
  waitpid(pid, nullptr, 0);
}

TEST(Starts, CallThatFailsStartsNothing) {
  for (const int code : {0, 1, 126}) {
    const Child child(code);
    Starts starts("", "");
    starts.note_call(identify(child.pid()), {.kind = Start::Kind::kFails});
    child.end();
    starts.look();
    EXPECT_EQ(starts.finish({}).started(), 0);
  }
}

TEST(Starts, ProcessThatIsGoneBeforeItsSecondCallIsReadHasStartedNothing) {
  for (const bool forked : {true, false}) {
    Identity who = {.pid = 1 << 23, .thread = 1 << 23};  // more than any process has
    who.stat = {.name = "sh", .state = 'S', .started = 7, .image = {1, 2, 3, 4}, .forked = forked};
    Starts starts("", "");
    starts.note_call(who, {.kind = Start::Kind::kFails});
    who.stat = read_stat(who.pid);
    starts.read(who, {});
    EXPECT_EQ(starts.finish({}).started(), 0);
  }
}

}  // namespace
}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/observe/process.h"

#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <optional>

#include "shim/launcher/observe/start.h"
#include "shim/launcher/observe/starts.h"

namespace cudaguard::launcher {
namespace {

/// The kernel reports a call to the launcher before the calling thread has gone to sleep. The
/// launcher does not wait for a thread that runs on.
TEST(WaitingThread, HasRegistersEvenIfItGoesToSleepOnlyNow) {
  using std::chrono::steady_clock;
  for (const bool sleeps : {true, false}) {
    const pid_t child = fork();
    if (child == 0) {
      const auto end = steady_clock::now() + std::chrono::milliseconds(sleeps ? 5 : 60'000);
      while (steady_clock::now() < end) {
      }
      for (;;) pause();
    }
    EXPECT_EQ(waiting_at(child).has_value(), sleeps);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
}

/// Also if the launcher is linked dynamically, as the unit tests are.
TEST(Executables, OwnFileIsTheLauncher) {
  EXPECT_EQ(Executables().of("/proc/self/exe").kind, FileFacts::Kind::kLauncher);
}

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

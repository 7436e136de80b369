// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/child/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "shim/launcher/message.h"

namespace cudaguard::launcher {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// How long to wait for the death of a killed process.
constexpr milliseconds kDeath{2000};
constexpr size_t kMostText = size_t{4} << 20;

[[noreturn]] void give_up() {
  throw Shortage(std::string("cannot start a process: ") + strerror(errno));
}

/// A pipe and its contents. Its ends are closed on exec, and above 2, because the caller may have
/// closed descriptors 0 to 2.
class Stream {
 public:
  Stream() {
    int made[2];
    if (pipe2(made, O_CLOEXEC) != 0) give_up();
    from_ = above_stderr(made[0]);
    to_ = above_stderr(made[1]);
    if (from_ >= 0 && to_ >= 0 && fcntl(from_, F_SETFL, O_NONBLOCK) == 0) return;
    const int error = errno;
    close_both();
    errno = error;
    give_up();
  }
  ~Stream() { close_both(); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// -1 if no process can write to the pipe any more.
  int from() const { return from_; }
  int to() const { return to_; }
  std::string& text() { return text_; }
  void close_writing() { close_end(to_); }
  /// Reads what is available, which is at most the capacity of a pipe.
  void take() {
    char buffer[65536];
    const ssize_t got = read(from_, buffer, sizeof buffer);
    if (got == 0) close_end(from_);
    if (got > 0 && text_.size() < kMostText) text_.append(buffer, static_cast<size_t>(got));
  }

 private:
  static void close_end(int& end) {
    if (end >= 0) close(end);
    end = -1;
  }
  void close_both() {
    close_end(from_);
    close_end(to_);
  }
  int from_ = -1;
  int to_ = -1;
  std::string text_;
};

[[noreturn]] void become(char* const* argv, char* const* environment, int out, int err, int failure,
                         bool (*before)()) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  dup2(err, STDIN_FILENO);  // reads fail there; a minimal root may have no /dev/null
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  int why = kHeldBack;
  if (before == nullptr || before()) {
    execve(argv[0], argv, environment);
    why = errno;
  }
  [[maybe_unused]] const ssize_t written = write(failure, &why, sizeof why);
  _exit(kRefused);
}

/// Returns false if the child has not ended in time. Its own children may keep its output open.
bool wait_for(pid_t child, Stream& out, Stream& err, milliseconds patience, int& status) {
  const auto limit = Clock::now() + patience;
  for (useconds_t pause = 20; Clock::now() < limit; pause = std::min<useconds_t>(2 * pause, 1000)) {
    pollfd waiting[] = {{out.from(), POLLIN, 0}, {err.from(), POLLIN, 0}};
    out.from() < 0 && err.from() < 0 ? usleep(pause) : poll(waiting, 2, 10);
    const pid_t ended = waitpid(child, &status, WNOHANG);
    const int error = ended < 0 ? errno : 0;
    out.take();
    err.take();
    if (ended == child || error == ECHILD) return true;
    // If a seccomp filter forbids waiting, the end of its output counts as the child's end.
    if (error != 0 && error != EINTR && out.from() < 0 && err.from() < 0) return true;
  }
  return false;
}

}  // namespace

int above_stderr(int fd) {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  close(fd);
  errno = error;
  return moved;
}

ChildEnd run_child(std::vector<std::string> words, Variables variables, milliseconds patience,
                   bool (*before)()) {
  Stream out;
  Stream err;
  Stream failure;
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const std::vector<char*> environment = variables.pointers();
  const pid_t child = fork();
  if (child < 0) give_up();
  if (child == 0) become(argv.data(), environment.data(), out.to(), err.to(), failure.to(), before);
  setpgid(child, child);
  for (Stream* stream : {&out, &err, &failure}) stream->close_writing();
  ChildEnd end;
  end.in_time = wait_for(child, out, err, patience, end.status);
  kill(-child, SIGKILL);  // including the processes that it has started
  if (!end.in_time && !wait_for(child, out, err, kDeath, end.status)) end.stuck = child;
  // If we are process 1 of a container, the group's orphans are ours and must not become zombies.
  pid_t orphan = 1;
  for (int i = 0; i < 50 && orphan >= 0; ++i) {
    orphan = waitpid(-child, nullptr, WNOHANG);
    if (orphan == 0) usleep(1000);
  }
  failure.take();
  if (failure.text().size() == sizeof end.not_started) {
    memcpy(&end.not_started, failure.text().data(), sizeof end.not_started);
  }
  end.out = std::move(out.text());
  end.err = std::move(err.text());
  return end;
}

}  // namespace cudaguard::launcher

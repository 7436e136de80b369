// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/fence/try_fence.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

namespace cudaguard::launcher {

namespace {

/// The child writes this before its reason.
struct Outcome {
  bool holds;
  bool was_there;
  bool no_new_privs;
  bool listens;
};

[[noreturn]] void tell(int pipe) {
  const Fence fence = put_up_fence(true);
  const Outcome outcome = {fence.holds, fence.was_there, fence.no_new_privs, fence.listener >= 0};
  std::string text(reinterpret_cast<const char*>(&outcome), sizeof outcome);
  text += fence.holds ? fence.unseen : fence.why_not;
  const ssize_t written = write(pipe, text.data(), text.size());  // a pipe holds far more
  _exit(written < 0);
}

std::string all_of(int pipe) {
  std::string text;
  char part[256];
  ssize_t size;
  while ((size = read(pipe, part, sizeof part)) > 0 || (size < 0 && errno == EINTR)) {
    text.append(part, size < 0 ? 0 : static_cast<size_t>(size));
  }
  return text;
}

}  // namespace

Fence try_fence() {
  Fence fence;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    fence.why_not = std::string("it was not tried: ") + strerror(errno);
    return fence;
  }
  const pid_t child = fork();
  const int error = errno;
  if (child == 0) tell(ends[1]);
  close(ends[1]);
  const std::string text = all_of(ends[0]);
  close(ends[0]);
  if (child < 0) {
    fence.why_not = std::string("it was not tried: ") + strerror(error);
    return fence;
  }
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  Outcome outcome = {};
  if (text.size() < sizeof outcome) {
    fence.why_not = "a process that tried it was killed";
    return fence;
  }
  memcpy(&outcome, text.data(), sizeof outcome);
  fence.holds = outcome.holds;
  fence.was_there = outcome.was_there;
  fence.no_new_privs = outcome.no_new_privs;
  if (outcome.listens) fence.listener = 0;
  (fence.holds ? fence.unseen : fence.why_not) = text.substr(sizeof outcome);
  return fence;
}

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/message.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

namespace cudaguard::launcher {

namespace {

bool g_have_stderr = false;
bool g_warns = true;

/// What is no terminal gets UTF-8 whatever the locale is, because a file is read elsewhere.
std::string for_descriptor(int fd, std::string_view text) {
  std::string result(text);
  if (isatty(fd) == 0 || shows_utf8(getenv("LC_ALL"), getenv("LC_CTYPE"), getenv("LANG")))
    return result;
  Text shown(result.data(), result.size());
  shown.put(text).make_ascii();
  return result;
}

}  // namespace

Refusal cannot_start(const std::string& path, int error) {
  return {error == ENOENT ? kNotFound : kCannotRun,
          in_quotes(path) + " cannot be started: " + strerror(error)};
}

void remember_stderr() { g_have_stderr = fcntl(STDERR_FILENO, F_GETFD) >= 0; }

void print_message(std::string_view text) {
  if (!g_have_stderr) return;
  const std::string line = for_descriptor(STDERR_FILENO, "cudaguard: " + std::string(text) + "\n");
  // If this fails, there is no way to report it.
  write_once(STDERR_FILENO, line);
}

void silence_warnings() { g_warns = false; }

void warn(std::string_view text) {
  if (g_warns) print_message(text);
}

void print(const std::string& text) {
  const int error = write_all(STDOUT_FILENO, text);
  if (error != 0) throw Refusal(kRefused, std::string("cannot print: ") + strerror(error));
}

int write_all(int fd, std::string_view whole) {
  const std::string shown = for_descriptor(fd, whole);
  std::string_view text = shown;
  while (!text.empty()) {
    const ssize_t written = write_once(fd, text);
    if (written > 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (written < 0 && errno == EAGAIN) {
      pollfd ready = {fd, POLLOUT, 0};
      poll(&ready, 1, -1);
    } else if (written == 0 || errno != EINTR) {
      return written == 0 ? ENOSPC : errno;
    }
  }
  return 0;
}

ssize_t write_once(int fd, std::string_view text) {
  const auto before = signal(SIGXFSZ, SIG_IGN);
  const ssize_t written = write(fd, text.data(), text.size());
  signal(SIGXFSZ, before);
  return written;
}

void write_stderr(std::string_view text) {
  if (g_have_stderr) write_all(STDERR_FILENO, text);
}

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/message.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace cudaguard::launcher {

namespace {

constexpr size_t kShown = 400;
bool g_have_stderr = false;

}  // namespace

Refusal cannot_start(const std::string& path, int error) {
  return {error == ENOENT ? kNotFound : kCannotRun,
          in_quotes(path) + " cannot be started: " + strerror(error)};
}

std::string printable(std::string_view text) {
  return text_of([&](Text& out) { out.put_printable(text, kShown); });
}

std::string in_quotes(std::string_view text) { return "\"" + printable(text) + "\""; }

std::string grouped(uint64_t number) {
  std::string text;
  const std::string digits = std::to_string(number);
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i != 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string counted(uint64_t number, const char* what) {
  const std::string_view word = what;
  const char* end = number == 1 ? "" : word.ends_with("s") ? "es" : "s";
  return grouped(number).append(" ").append(word).append(end);
}

void add_wrapped(std::string& text, const std::string& start, std::string_view rest) {
  text += start;
  const size_t room = kColumns - std::min(start.size(), kColumns - 1);
  while (rest.size() > room) {
    size_t blank = rest.rfind(' ', room);
    if (blank == std::string_view::npos || blank == 0) blank = rest.find(' ', room);
    if (blank == std::string_view::npos) break;
    text.append(rest.substr(0, blank)).append("\n").append(start.size(), ' ');
    rest.remove_prefix(blank + 1);
  }
  text.append(rest).append("\n");
}

void remember_stderr() { g_have_stderr = fcntl(STDERR_FILENO, F_GETFD) >= 0; }

void say(std::string_view text) {
  if (!g_have_stderr) return;
  const std::string line = "cudaguard: " + std::string(text) + "\n";
  // Nobody is left to tell if this fails.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

void print(const std::string& text) {
  if (fputs(text.c_str(), stdout) < 0 || fflush(stdout) != 0) {
    throw Refusal(kRefused, std::string("cannot print: ") + strerror(errno));
  }
}

void write_stderr(std::string_view text) {
  while (g_have_stderr && !text.empty()) {
    const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
    if (written > 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (written < 0 && errno == EAGAIN) {
      // Somebody has made it non-blocking.
      pollfd ready = {STDERR_FILENO, POLLOUT, 0};
      poll(&ready, 1, -1);
    } else if (written == 0 || errno != EINTR) {
      return;
    }
  }
}

}  // namespace cudaguard::launcher

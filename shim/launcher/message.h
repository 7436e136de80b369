// SPDX-License-Identifier: Apache-2.0
// The launcher's messages, exit codes and refusals.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "shim/launcher/format.h"

namespace cudaguard::launcher {

// Exit codes, as in env and timeout.
inline constexpr int kRefused = 125;
inline constexpr int kCannotRun = 126;
inline constexpr int kNotFound = 127;

/// The program is not started; what() is one line without a newline.
class Refusal : public std::runtime_error {
 public:
  Refusal(int code, const std::string& reason) : std::runtime_error(reason), code_(code) {}
  int code() const { return code_; }

 private:
  int code_;
};

/// The refusal for the program at `path` after execve failed with `error`.
Refusal cannot_start(const std::string& path, int error);

/// Call this first: later, a file of ours may have descriptor 2.
void remember_stderr();
/// Prints one line on stderr in one write, with "cudaguard: " before it.
void print_message(std::string_view text);
/// Like print_message(), for warnings that are no part of a result: --log=off silences them.
void warn(std::string_view text);
void silence_warnings();

/// Prints on the standard output. Throws Refusal if that fails.
void print(const std::string& text);

/// Writes everything, also if the descriptor is non-blocking. Returns 0, or an errno value. On a
/// terminal that does not show UTF-8, each byte that is not ASCII is a '?'; print() and
/// print_message() do the same.
int write_all(int fd, std::string_view text);
/// A write(2) to a file. If the file gets too long (ulimit -f), it fails and raises no signal.
ssize_t write_once(int fd, std::string_view text);

/// Writes the text, for any kind of stderr; as much as possible.
void write_stderr(std::string_view text);

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
// What the launcher says, and how it gives up.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "shim/launcher/format.h"

namespace cudaguard::launcher {

// Exit codes, as those of env and timeout.
inline constexpr int kRefused = 125;
inline constexpr int kCannotRun = 126;
inline constexpr int kNotFound = 127;

/// The program is not started; what() is one line without its end.
class Refusal : public std::runtime_error {
 public:
  Refusal(int code, const std::string& reason) : std::runtime_error(reason), code_(code) {}
  int code() const { return code_; }

 private:
  int code_;
};

/// The program at `path`, of which execve has said `error`.
Refusal cannot_start(const std::string& path, int error);

/// To be called first: later a file of ours may have number 2.
void remember_stderr();
/// One line on stderr, in one write; "cudaguard: " in front.
void print_message(std::string_view text);
/// The same for what does not end cudaguard and is no part of a result: --log=off silences it.
void warn(std::string_view text);
void silence_warnings();

/// On the standard output. Throws Refusal where it cannot be written.
void print(const std::string& text);

/// All of it, also where somebody has made the descriptor non-blocking. 0, or an errno value.
int write_all(int fd, std::string_view text);

/// As it is, wherever the standard error leads to; as much as goes.
void write_stderr(std::string_view text);

}  // namespace cudaguard::launcher

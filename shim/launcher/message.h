// SPDX-License-Identifier: Apache-2.0
// What the launcher says, and how it gives up.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "policy/message.h"

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

/// For a terminal: what is not printable becomes '?', and what is very long is cut.
std::string printable(std::string_view text);
/// The same in double quotes.
std::string in_quotes(std::string_view text);

std::string grouped(uint64_t number);                    ///< "12,345"
std::string counted(uint64_t number, const char* what);  ///< "1 process", "2,000 processes"

inline constexpr size_t kColumns = 100;
/// Lines within kColumns, where they carry no long path: `start` stands in front of the first, as
/// many blanks in front of the others.
void add_wrapped(std::string& text, const std::string& start, std::string_view rest);

/// To be called first: later a file of ours may have number 2.
void remember_stderr();
/// One line on stderr, in one write; "cudaguard: " in front.
void say(std::string_view text);

/// On the standard output. Throws Refusal where it cannot be written.
void print(const std::string& text);

/// As it is, wherever the standard error leads to; as much as goes.
void write_stderr(std::string_view text);

/// What `put` writes: clauses of policy/message.h.
template <typename Put>
std::string text_of(Put put) {
  char buffer[kMaxLine];
  Text out(buffer, sizeof buffer);
  put(out);
  return std::string(out.view());
}

}  // namespace cudaguard::launcher

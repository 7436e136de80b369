// SPDX-License-Identifier: Apache-2.0
// The command line of a process. Its words are untrusted, not yet escaped for a terminal or a page.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace cudaguard::launcher {

struct Command {
  /// Words after this many bytes are left out.
  static constexpr size_t kMost = 4096;

  std::string text = {};  ///< the words with a zero byte between; a program's name if it is alone
  bool is_cut = false;    ///< the last word may be cut, and more words may be missing

  bool operator==(const Command&) const = default;
  /// Does nothing if the command is cut.
  void add(std::string_view word);
  std::vector<std::string_view> words() const;
  /// The first word without its directories.
  std::string_view program() const;
  /// For people: the words with blanks between, the first one without its directories. The words
  /// after the first thousand bytes are left out.
  std::string shown() const;
};

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
// The one way to format text for a terminal, numbers, times and process ids. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "policy/text.h"

namespace cudaguard::launcher {

inline constexpr size_t kMostPrinted = 400;

/// For a terminal: a tab becomes a blank; all else is as take_printable() says. Text longer than
/// `most` bytes is cut at a character, and ends in "...".
std::string printable(std::string_view text, size_t most = kMostPrinted);
/// Puts the text in double quotes. Very long text is cut.
std::string in_quotes(std::string_view text);

/// "; did you mean run?", if one of the known words is close to this one. Otherwise empty. `same`
/// is the number of letters with which all of them begin.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known,
                         size_t same = 0);

std::string grouped(uint64_t number);                    ///< "12,345"
std::string counted(uint64_t number, const char* what);  ///< "1 process", "2,000 processes"
std::string id_ranges(std::vector<uint32_t> ids);        ///< "3 7-12 15", each number once

/// Text longer than `most` bytes ends in " ..." after a whole word.
std::string whole_words(std::string text, size_t most);

/// A function's name in which "<...>" stands for each long list of template arguments.
std::string short_function(std::string_view name);

/// `at` is in seconds since 1970-01-01 UTC, 0 if unknown ("-"). `format` is strftime's. In UTC.
std::string utc_time(double at, const char* format);

inline constexpr size_t kColumns = 100;
/// Adds lines within kColumns, except for long paths: `start` comes before the first line, as many
/// blanks before the others.
void add_wrapped(std::string& text, const std::string& start, std::string_view rest,
                 size_t columns = kColumns);
/// Adds one line, which is cut at kColumns.
void add_row(std::string& text, const std::string& row);

/// Adds "  ... and 3 more WHAT" if not all are shown.
void add_more(std::string& text, size_t all, size_t shown, std::string_view what);

/// Quotes the text as one word for a shell.
std::string shell_quoted(std::string_view text);

/// "a, b, c"
std::string joined(const auto& list, std::string_view between) {
  std::string text;
  for (const auto& item : list) text.append(text.empty() ? "" : between).append(item);
  return text;
}

/// Returns the text that `put` writes: clauses of shim/guard/text/message.h.
template <typename Put>
std::string text_of(Put put) {
  char buffer[kMaxLine];
  Text out(buffer, sizeof buffer);
  put(out);
  return std::string(out.view());
}

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/format.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <ctime>

namespace cudaguard::launcher {

namespace {

/// The number of letters to add, remove, replace or swap with the next one.
size_t edits(std::string_view from, std::string_view to) {
  std::vector<std::vector<size_t>> cost(from.size() + 1, std::vector<size_t>(to.size() + 1));
  for (size_t i = 0; i <= from.size(); ++i) {
    for (size_t k = 0; k <= to.size(); ++k) {
      size_t least = i == 0 || k == 0 ? i + k
                                      : std::min({cost[i - 1][k] + 1, cost[i][k - 1] + 1,
                                                  cost[i - 1][k - 1] + (from[i - 1] != to[k - 1])});
      if (i > 1 && k > 1 && from[i - 1] == to[k - 2] && from[i - 2] == to[k - 1]) {
        least = std::min(least, cost[i - 2][k - 2] + 1);
      }
      cost[i][k] = least;
    }
  }
  return cost[from.size()][to.size()];
}

/// Cuts the text at a character, so that "..." fits behind it.
std::string cut(std::string_view text, size_t most) {
  return std::string(whole_head(text, most - 3)) + "...";
}

}  // namespace

std::string printable(std::string_view text, size_t most) {
  std::string result;
  while (!text.empty()) {
    const bool is_tab = text.front() == '\t';
    const std::string_view character = take_printable(text);
    result += is_tab ? " " : character;
  }
  return result.size() > most ? cut(result, most) : result;
}

std::string in_quotes(std::string_view text) {
  return text_of([&](Text& out) { out.put("\"").put_printable(text, kMostPrinted).put("\""); });
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& known,
                         size_t same) {
  std::string best;
  size_t least = SIZE_MAX;
  for (const std::string& other : known) {
    if (word.size() > 2 * other.size()) continue;
    const size_t count = edits(word, other);
    const size_t longer = std::max(word.size(), other.size());
    if (count * 3 + same > longer || count > least) continue;
    if (count == least && !other.starts_with(word)) continue;  // --gpu: --gpus, not --cpu
    best = other;
    least = count;
  }
  return best.empty() ? "" : "; did you mean " + best + "?";
}

std::string grouped(uint64_t number) {
  std::string text = std::to_string(number);
  for (size_t at = text.size(); at > 3;) text.insert(at -= 3, 1, ',');
  return text;
}

std::string counted(uint64_t number, const char* what) {
  const std::string_view word = what;
  const char* end = number == 1 ? "" : word.ends_with("s") ? "es" : "s";
  return grouped(number).append(" ").append(word).append(end);
}

std::string id_ranges(std::vector<uint32_t> ids) {
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  std::string text;
  for (size_t i = 0; i < ids.size();) {
    size_t last = i;
    while (last + 1 < ids.size() && ids[last + 1] == ids[last] + 1) ++last;
    text.append(text.empty() ? "" : " ").append(std::to_string(ids[i]));
    if (last != i) text.append("-").append(std::to_string(ids[last]));
    i = last + 1;
  }
  return text;
}

std::string short_function(std::string_view name) {
  constexpr std::string_view kShort = "<...>";
  std::string result;
  size_t open = 0;   // how many lists are open
  size_t start = 0;  // where the outermost of them begins
  for (size_t i = 0; i < name.size(); ++i) {
    const char before = i == 0 ? ' ' : name[i - 1];
    const bool is_operator = name.substr(0, i).ends_with("operator");
    const bool follows_a_name =
        before == ':' || before == '_' || isalnum(static_cast<unsigned char>(before)) != 0;
    if (open == 0) start = i;
    if (name[i] == '<' && !is_operator && (open > 0 || follows_a_name)) {
      ++open;
    } else if (open > 0 && name[i] == '>' && before != '-' && --open == 0) {
      const std::string_view list = name.substr(start, i + 1 - start);
      result += list.size() > kShort.size() ? kShort : list;
      continue;
    }
    if (open == 0) result += name[i];
  }
  return open == 0 ? result : result + "<...";  // the name was cut
}

std::string whole_words(std::string text, size_t most) {
  if (text.size() <= most) return text;
  text.resize(std::min(text.rfind(' ', most - 4), most - 4));
  return text + " ...";
}

std::string utc_time(double at, const char* format) {
  const auto seconds = static_cast<time_t>(at);
  tm parts = {};
  if (at == 0 || gmtime_r(&seconds, &parts) == nullptr) return "-";
  std::array<char, 64> text = {};
  strftime(text.data(), text.size(), format, &parts);
  return text.data();
}

void add_wrapped(std::string& text, const std::string& start, std::string_view rest,
                 size_t columns) {
  text += start;
  const size_t room = columns - std::min(start.size(), columns - 1);
  while (rest.size() > room) {
    size_t blank = rest.rfind(' ', room);
    if (blank == std::string_view::npos || blank == 0) blank = rest.find(' ', room);
    if (blank == std::string_view::npos) break;
    text.append(rest.substr(0, blank)).append("\n").append(start.size(), ' ');
    rest.remove_prefix(blank + 1);
  }
  text.append(rest).append("\n");
}

void add_row(std::string& text, const std::string& row) {
  text.append(row.size() <= kColumns ? row : cut(row, kColumns)).append("\n");
}

void add_more(std::string& text, size_t all, size_t shown, std::string_view what) {
  if (all <= shown) return;
  text.append("  ... and ").append(std::to_string(all - shown)).append(" more ");
  text.append(what).append("\n");
}

std::string shell_quoted(std::string_view text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,%+@";
  // "$$" stays unquoted: a shell replaces it by its own process id.
  if (text == "$$" || text.find_first_not_of(kPlain) == std::string_view::npos) {
    return std::string(text);
  }
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? "'\\''" : std::string(1, c);
  return result + "'";
}

}  // namespace cudaguard::launcher

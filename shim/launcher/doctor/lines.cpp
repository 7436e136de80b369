// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/doctor/lines.h"

#include <algorithm>

namespace cudaguard::launcher {

namespace {

constexpr size_t kColumns = 100;
constexpr size_t kNames = 19;

/// `start` stands in front of the first line, as many blanks in front of the others.
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

}  // namespace

void add_line(std::string& text, std::string_view name, std::string_view value) {
  std::string start(name);
  start.resize(std::max(kNames, name.size() + 2), ' ');
  add_wrapped(text, start, value);
}

void add_item(std::string& text, std::string_view sentence) { add_wrapped(text, "  - ", sentence); }

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/doctor/rows.h"

#include <algorithm>
#include <utility>

namespace cudaguard::launcher {

namespace {

constexpr size_t kColumns = 100;
constexpr size_t kNames = 19;

/// Cut at blanks.
void add(std::string& to, const Line& line) {
  to += line.start;
  const size_t room = kColumns - std::min(line.start.size(), kColumns - 1);
  std::string_view rest = line.text;
  while (rest.size() > room) {
    size_t blank = rest.rfind(' ', room);
    if (blank == std::string_view::npos || blank == 0) blank = rest.find(' ', room);
    if (blank == std::string_view::npos) break;
    to.append(rest.substr(0, blank)).append("\n").append(line.start.size(), ' ');
    rest.remove_prefix(blank + 1);
  }
  to.append(rest).append("\n");
}

}  // namespace

Lines named(std::string_view name, const std::vector<std::string>& texts) {
  Lines lines;
  for (const std::string& text : texts) {
    if (text.empty()) continue;
    std::string start(lines.empty() ? name : "");
    start.resize(std::max(kNames, start.size() + 2), ' ');
    lines.push_back({std::move(start), text});
  }
  return lines;
}

Row group(std::string id, const Rows& rows) {
  Row all = {std::move(id), Json::object(), {}};
  for (const Row& row : rows) {
    all.value[row.id] = row.value;
    all.lines += row.lines;
  }
  return all;
}

std::string as_json(const Rows& rows) {
  // A path may be any bytes; JSON is UTF-8.
  return group("", rows).value.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string as_text(const Rows& rows) {
  std::string text;
  for (const Row& row : rows) {
    for (const Line& line : row.lines) add(text, line);
  }
  return text;
}

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/doctor/rows.h"

#include <algorithm>
#include <utility>

#include "shim/launcher/message.h"

namespace cudaguard::launcher {

Lines named(std::string_view name, const std::vector<std::string>& texts) {
  constexpr size_t kNames = 19;
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
    for (const Line& line : row.lines) add_wrapped(text, line.start, line.text);
  }
  return text;
}

}  // namespace cudaguard::launcher

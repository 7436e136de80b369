// SPDX-License-Identifier: Apache-2.0
// What doctor has found: one list, which is printed as text or as JSON. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cudaguard::launcher {

using Json = nlohmann::ordered_json;

struct Line {
  std::string start;  ///< as many blanks stand in front of what does not fit into the first one
  std::string text;
};
using Lines = std::vector<Line>;

// NOLINTNEXTLINE(bugprone-exception-escape): the JSON library's own move
struct Row {
  std::string id;  ///< its key in doctor.schema.json
  Json value;
  Lines lines;  ///< none: it is for JSON alone
};
using Rows = std::vector<Row>;

/// "name               text"; further texts below the first, empty ones left out.
Lines named(std::string_view name, const std::vector<std::string>& texts);

/// What is empty is not known, or not there.
inline Json or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }
template <typename Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}

/// One list behind another.
template <typename Item>
std::vector<Item>& operator+=(std::vector<Item>& list, const std::vector<Item>& more) {
  list.insert(list.end(), more.begin(), more.end());
  return list;
}

/// A row made of rows.
Row group(std::string id, const Rows& rows);

std::string as_json(const Rows& rows);
/// Lines within 100 columns, where they do not carry a long path.
std::string as_text(const Rows& rows);

}  // namespace cudaguard::launcher

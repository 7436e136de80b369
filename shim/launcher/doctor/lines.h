// SPDX-License-Identifier: Apache-2.0
// Doctor's text: lines within 100 columns, where they do not carry a long path. Pure.
#pragma once

#include <string>
#include <string_view>

namespace cudaguard::launcher {

/// "name               value"; what does not fit goes on below the value, cut at blanks. Without a
/// name it belongs to the line before.
void add_line(std::string& text, std::string_view name, std::string_view value);

/// "  - sentence", likewise.
void add_item(std::string& text, std::string_view sentence);

}  // namespace cudaguard::launcher

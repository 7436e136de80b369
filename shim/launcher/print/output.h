// SPDX-License-Identifier: Apache-2.0
// Files that a result is written to.
#pragma once

#include <optional>
#include <string>

namespace cudaguard::launcher {

/// Makes the file, or empties it: no result of an earlier run stays where this one dies. `option`:
/// "--json". Throws Refusal where it cannot be written to.
void empty_output(const char* option, const std::optional<std::string>& file);

/// Throws Refusal where not all of it could be written.
void write_output(const char* option, const std::string& file, const std::string& text);

}  // namespace cudaguard::launcher

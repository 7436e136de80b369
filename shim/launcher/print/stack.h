// SPDX-License-Identifier: Apache-2.0
// The rows of text that show a stack.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shim/launcher/findings/model.h"
#include "shim/launcher/print/symbols.h"

namespace cudaguard::launcher {

inline constexpr size_t kNoFrame = SIZE_MAX;

/// "torch/cuda/__init__.py:118 in is_available"
std::string row_of(const PythonFrame& frame);

/// "    python   ROW" and more below it; the `own` one is marked. The middle of a long list is left
/// out.
void put_frames(std::string& out, std::string_view label, const std::vector<std::string>& rows,
                size_t own = kNoFrame);

/// Gives each toucher without Python frames the source line of its own native frame, if it is
/// known: "app.cpp:12". Call it before decide(), which groups by these lines.
void name_own_lines(Findings& findings, Symbols& symbols);

/// Python's frames and the native ones, or why there are none.
void put_stack(std::string& out, const CallSite& toucher, Symbols& symbols);

}  // namespace cudaguard::launcher

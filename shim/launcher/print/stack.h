// SPDX-License-Identifier: Apache-2.0
// Prints the rows of a stack.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shim/launcher/findings/model.h"
#include "shim/launcher/findings/symbols.h"

namespace cudaguard::launcher {

inline constexpr size_t kNoFrame = SIZE_MAX;

/// "torch/cuda/__init__.py:118 in is_available"
std::string row_of(const PythonFrame& frame);

/// Prints "    python   ROW" and more rows below it, and marks row `own`. A long list is cut in the
/// middle.
void put_frames(std::string& out, std::string_view label, const std::vector<std::string>& rows,
                size_t own = kNoFrame);

/// Prints Python's frames and the native ones, or why there are none.
void put_stack(std::string& out, const CallSite& toucher, Symbols& symbols);

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
// Finds the source lines of native frames in the files' debug information.
#pragma once

#include <map>
#include <string>

#include "shim/launcher/findings/model.h"

namespace cudaguard::launcher {

/// "/src/app.cpp:12" for each frame with a known line.
using NativeLines = std::map<NativeFrame, std::string>;

/// Runs addr2line of binutils, if `search` (PATH, or null) has it, because this static executable
/// cannot load a DWARF library. A damaged file can at most end or delay that process. A file that
/// has changed since its frames were recorded has no lines.
NativeLines find_native_lines(const Findings& findings, const char* search);

}  // namespace cudaguard::launcher

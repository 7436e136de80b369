// SPDX-License-Identifier: Apache-2.0
// Source lines of native frames, from the files' debug information.
#pragma once

#include <map>
#include <string>

#include "shim/launcher/findings/model.h"

namespace cudaguard::launcher {

/// "/src/app.cpp:12" of each frame whose line is known.
using NativeLines = std::map<NativeFrame, std::string>;

/// Asks addr2line of binutils, if `search` (PATH, or null) has it: this executable is static and
/// can load no library that reads DWARF. A damaged file can at most end or delay that process. A
/// file that has changed since its frames were recorded has no lines.
NativeLines find_native_lines(const Findings& findings, const char* search);

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
// Finds the source lines of native frames in the files' debug information.
#pragma once

#include "shim/launcher/findings/model.h"
#include "shim/launcher/findings/symbols.h"

namespace cudaguard::launcher {

/// Gives `symbols` the source lines of all native frames, and each toucher without Python frames
/// the line of its own native frame: "app.cpp:12". Call this before decide(), which groups by these
/// lines.
///
/// Runs addr2line of binutils, if `search` (PATH, or null) has it, because this static executable
/// cannot load a DWARF library. A damaged file can at most end or delay that process. A file that
/// has changed since its frames were recorded has no lines.
void name_native_lines(Findings& findings, Symbols& symbols, const char* search);

}  // namespace cudaguard::launcher

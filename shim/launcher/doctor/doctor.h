// SPDX-License-Identifier: Apache-2.0
// `cudaguard doctor`: is cudaguard installed and active, can this program be guarded, and does the
// driver answer?
#pragma once

#include "shim/launcher/options.h"

namespace cudaguard::launcher {

/// Prints the text, and writes the JSON document (doctor.schema.json) to the file of --json; on the
/// standard output it replaces the text. Returns 0: well, and the program is guarded; 1: guarded in
/// part, or something is wrong; 2: it cannot be guarded. Throws Refusal.
int doctor(const Options& options, const char* const* environment);

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
// `cudaguard doctor`: reports whether cudaguard is installed and active, whether this program can
// be guarded, and whether the driver answers.
#pragma once

#include "shim/launcher/options.h"

namespace cudaguard::launcher {

/// Prints the text, and writes the JSON document (doctor.schema.json) to the file of --json. On the
/// standard output the document replaces the text. Returns 0 if all is well, 1 if the program is
/// guarded in part or there is a problem, 2 if it cannot be guarded. Throws Refusal.
int doctor(const Options& options, const char* const* environment);

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
// `cudaguard doctor`: is cudaguard installed and active, can this program be guarded, and does the
// driver answer?
#pragma once

#include "shim/launcher/options.h"

namespace cudaguard::launcher {

/// Prints the text, or with --json one JSON document (doctor.schema.json). Returns 0: well, and the
/// program is guarded; 1: guarded in part, or something is wrong; 2: it cannot be guarded. Throws
/// Refusal.
int doctor(const Options& options, const char* const* environment);

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
// The machine's half of doctor as JSON and as text; both say the same.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "shim/launcher/doctor/findings.h"

namespace cudaguard::launcher {

/// "machine" of doctor.schema.json.
nlohmann::ordered_json machine_json(const MachineFacts& facts, const Findings& findings);

std::string machine_text(const MachineFacts& facts, const Findings& findings);

}  // namespace cudaguard::launcher

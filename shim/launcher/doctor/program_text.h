// SPDX-License-Identifier: Apache-2.0
// The program's half of doctor as lines for people, and as JSON. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "shim/launcher/doctor/guarded.h"
#include "shim/launcher/doctor/program_facts.h"

namespace cudaguard::launcher {

/// Lines; the last one is "guarded: ...".
std::string program_text(const ProgramFacts& facts, const Guarded& guarded);

/// "program" of doctor.schema.json.
nlohmann::ordered_json program_json(const ProgramFacts& facts, const Guarded& guarded);

/// "dynamic", "static", "static-pie", "loader", "launcher"; null: of a class that was not read.
const char* link_of(const ExecutableFacts& facts);

}  // namespace cudaguard::launcher

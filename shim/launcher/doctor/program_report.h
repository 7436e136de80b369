// SPDX-License-Identifier: Apache-2.0
// The program's half of doctor: will the guard hold in it, and why not. The program is not started.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "shim/launcher/child/variables.h"
#include "shim/launcher/preload/installation.h"

namespace cudaguard::launcher {

struct ProgramReport {
  nlohmann::ordered_json json;  ///< "program" of doctor.schema.json
  std::string text;             ///< lines, each with its end; the last one is "guarded: ..."
  int code = 0;                 ///< doctor's: 0 yes, 1 in part, 2 no
};

/// Throws Refusal where there is no such program (126, 127).
ProgramReport examine_program(const std::string& name, const Installation& installation,
                              const Variables& variables);

}  // namespace cudaguard::launcher

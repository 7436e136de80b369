// SPDX-License-Identifier: Apache-2.0
// verify --json, as verify.schema.json has it.
#pragma once

#include <string>

#include "shim/launcher/report/model.h"
#include "shim/launcher/report/symbols.h"

namespace cudaguard::launcher {

/// `indent`: as Json's.
std::string document(const Verdict& verdict, int exit_code, Symbols& symbols, unsigned indent = 1);

}  // namespace cudaguard::launcher

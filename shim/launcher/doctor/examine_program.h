// SPDX-License-Identifier: Apache-2.0
// The program's half of doctor: will the guard hold in it, and why not. The program is not started.
#pragma once

#include <string>

#include "shim/launcher/child/variables.h"
#include "shim/launcher/doctor/rows.h"
#include "shim/launcher/fence/fence.h"
#include "shim/launcher/preload/installation.h"

namespace cudaguard::launcher {

/// "program" of doctor.schema.json; the last line is "guarded: ...". `code`: doctor's, 0 yes,
/// 1 in part, 2 no. `fence`: what can be had here. Throws Refusal where there is no such program
/// (126, 127).
Row examine_program(const std::string& name, const Installation& installation,
                    const Variables& variables, const Fence& fence, int& code);

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
// What can be seen of an executable without starting it.
#pragma once

#include <vector>

#include "shim/launcher/child/variables.h"
#include "shim/launcher/doctor/own_files.h"
#include "shim/launcher/doctor/reasons.h"
#include "shim/launcher/doctor/rows.h"
#include "shim/launcher/elf/program.h"
#include "shim/launcher/preload/installation.h"

namespace cudaguard::launcher {

/// `variables`: with the guard in LD_PRELOAD. `broken`: of our own files.
struct Surroundings {
  const Program& program;
  const Installation& installation;
  const Variables& variables;
  const std::vector<OwnFile>& broken;
};

/// Of "executables" of doctor.schema.json; what speaks against guarding it is added to `reasons`.
Row examine_executable(const Executable& executable, const Surroundings& around, Reasons& reasons);

}  // namespace cudaguard::launcher

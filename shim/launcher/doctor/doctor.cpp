// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/doctor/doctor.h"

#include <cstdio>
#include <string>

#include "shim/launcher/child/variables.h"
#include "shim/launcher/doctor/examine_machine.h"
#include "shim/launcher/doctor/examine_program.h"
#include "shim/launcher/fence/try_fence.h"
#include "shim/launcher/message.h"
#include "shim/launcher/preload/installation.h"

namespace cudaguard::launcher {

int doctor(const Options& options, const char* const* environment) {
  const Variables variables(environment);
  const Installation installation = find_installation();
  const Fence fence = try_fence();
  int code = 0;
  Row program;
  // First, for it may not be there, and the driver may take its time.
  if (*options.program != nullptr) {
    program = examine_program(*options.program, installation, variables, fence, code);
  }
  Rows rows = {{"v", 1, {}},
               {"cudaguard", CUDAGUARD_VERSION, named("cudaguard", {CUDAGUARD_VERSION})},
               examine_machine(installation, variables, fence, code)};
  if (!program.id.empty()) {
    program.lines.insert(program.lines.begin(), Line());
    rows.push_back(program);
  }
  rows.push_back({"exit_code", code, {}});
  const std::string text = options.json ? as_json(rows) : as_text(rows);
  if (fputs(text.c_str(), stdout) < 0 || fflush(stdout) != 0) {
    throw Refusal(kRefused, "cannot print");
  }
  return code;
}

}  // namespace cudaguard::launcher

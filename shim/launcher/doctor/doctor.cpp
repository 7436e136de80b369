// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/doctor/doctor.h"

#include <cstdio>
#include <string>

#include "shim/launcher/doctor/machine.h"
#include "shim/launcher/doctor/program_report.h"
#include "shim/launcher/installation.h"
#include "shim/launcher/message.h"
#include "shim/launcher/variables.h"

namespace cudaguard::launcher {

int doctor(const Options& options, const char* const* environment) {
  const Variables variables(environment);
  const Installation installation = find_installation();
  const MachineReport machine = examine_machine(installation, variables);
  nlohmann::ordered_json document = {{"v", 1}, {"cudaguard", CUDAGUARD_VERSION}};
  document["machine"] = machine.json;
  std::string text = machine.text;
  int code = machine.problems.empty() ? 0 : 1;
  if (*options.program != nullptr) {
    const ProgramReport program = examine_program(*options.program, installation, variables);
    document["program"] = program.json;
    text += program.text;
    code = program.code == 0 ? code : program.code;
  }
  document["exit_code"] = code;
  if (options.json) {
    // A path may be any bytes; JSON is UTF-8.
    text = document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }
  if (fputs(text.c_str(), stdout) < 0 || fflush(stdout) != 0) {
    throw Refusal(kRefused, "cannot print");
  }
  return code;
}

}  // namespace cudaguard::launcher

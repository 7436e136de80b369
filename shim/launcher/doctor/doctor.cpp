// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/doctor/doctor.h"

#include <cstdio>
#include <string>

#include "shim/launcher/child/variables.h"
#include "shim/launcher/doctor/machine.h"
#include "shim/launcher/doctor/program_report.h"
#include "shim/launcher/message.h"
#include "shim/launcher/preload/installation.h"

namespace cudaguard::launcher {

int doctor(const Options& options, const char* const* environment) {
  const Variables variables(environment);
  const Installation installation = find_installation();
  nlohmann::ordered_json document = {
      {"v", 1}, {"cudaguard", CUDAGUARD_VERSION}, {"machine", nullptr}};
  std::string about_program;
  int code = 0;
  // First, for it may not be there, and the driver may take its time.
  if (*options.program != nullptr) {
    const ProgramReport program = examine_program(*options.program, installation, variables);
    document["program"] = program.json;
    about_program = "\n" + program.text;
    code = program.code;
  }
  const MachineReport machine = examine_machine(installation, variables);
  document["machine"] = machine.json;
  if (code == 0 && !machine.problems.empty()) code = 1;
  document["exit_code"] = code;
  std::string text = machine.text + about_program;
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

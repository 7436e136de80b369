// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/doctor/doctor.h"

#include <charconv>
#include <cstring>

#include "shim/launcher/doctor/questions.h"
#include "shim/launcher/elf/program.h"
#include "shim/launcher/fence/try_fence.h"
#include "shim/launcher/message.h"
#include "shim/launcher/print/output.h"

namespace cudaguard::launcher {

namespace {

std::chrono::seconds time_limit(const Variables& variables) {
  const char* value = variables.get(kDoctorTimeout.name);
  if (value == nullptr || *value == '\0') return std::chrono::seconds{10};
  int seconds = 0;
  const char* end = value + strlen(value);
  const auto [rest, error] = std::from_chars(value, end, seconds);
  if (error != std::errc() || rest != end || seconds < 1 || seconds > 3600) {
    throw Refusal(kRefused, std::string(kDoctorTimeout.name) + "=" + in_quotes(value) +
                                " is not accepted (accepted: " + kDoctorTimeout.accepted + ")");
  }
  return std::chrono::seconds{seconds};
}

}  // namespace

int doctor(const Options& options, const char* const* environment) {
  const Variables variables(environment);
  const std::chrono::seconds limit = time_limit(variables);
  const Installation installation = find_installation();
  const Machine machine = {variables, installation, try_fence(), look_at_own_files(installation),
                           limit};
  Document document;
  document.has_program = *options.program != nullptr;
  std::vector<TakenFile> taken;
  if (options.json_file && document.has_program) {
    const Program program = find_program(*options.program, variables.get("PATH"));
    taken = taken_by_program(program.files, options.program);
  }
  OutputFile json("--json", options.json_file, options.force, taken);
  // The program comes first, because it may not exist, and the driver may take long.
  if (document.has_program) {
    document.answer = ask_program(*options.program, machine, document.findings);
  }
  const Libraries libraries = find_libraries(machine);
  const std::string installed = ask_installed(machine, libraries, document.findings);
  const std::string driver = ask_driver(machine, libraries, document.findings);
  if (!document.has_program) document.answer = installed + "; " + driver;
  if (!json.is_stdout()) print(as_text(document));
  if (json) json.write(as_json(document));
  return exit_code(document.findings);
}

}  // namespace cudaguard::launcher

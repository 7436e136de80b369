// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/doctor/doctor.h"

#include <charconv>
#include <cstring>

#include "shim/launcher/doctor/questions.h"
#include "shim/launcher/fence/try_fence.h"
#include "shim/launcher/message.h"

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
  // First, because the program may not be there, and the driver may take its time.
  if (document.has_program) {
    document.answer = ask_program(*options.program, machine, document.findings);
  }
  const Libraries libraries = find_libraries(machine);
  const std::string installed = ask_installed(machine, libraries, document.findings);
  const std::string driver = ask_driver(machine, libraries, document.findings);
  if (!document.has_program) document.answer = installed + "; " + driver;
  print(options.json ? as_json(document) : as_text(document));
  return exit_code(document.findings);
}

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/doctor/doctor.h"

#include <charconv>
#include <cstring>

#include "shim/launcher/doctor/questions.h"
#include "shim/launcher/elf/program.h"
#include "shim/launcher/fence/try_fence.h"
#include "shim/launcher/health/health.h"
#include "shim/launcher/message.h"
#include "shim/launcher/print/json.h"
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

/// --gpu: returns 0 if the driver is healthy, 1 if not. Later launches use this answer.
int ask_health(const Options& options, const Variables& variables) {
  std::vector<TakenFile> taken;
  OutputFile file("--json", options.json_file, options.force, taken);
  HealthWish wish;
  wish.limit = time_limit(variables);
  wish.fresh = true;
  const Health health =
      check_health(wish, variables.get(row_of(Variable::kVisibleDevices).name), variables);
  if (!health.asked) throw Refusal(kRefused, health.reason);
  if (!file.is_stdout()) {
    print(health.healthy
              ? "driver: healthy, with " + counted(static_cast<uint64_t>(health.gpus), "GPU") + "\n"
              : "driver: not healthy: " + health.reason + "\n");
  }
  if (file) {
    Json json(2);
    json.begin_object()
        .field("v", 1)
        .field("cudaguard", CUDAGUARD_VERSION)
        .field("healthy", health.healthy)
        .field_or_null("reason", health.reason)
        .field("gpus", health.gpus)
        .field("seconds", static_cast<double>(health.took.count()) / 1000)
        .end_object();
    file.write(json.text() + "\n");
  }
  return health.healthy ? 0 : 1;
}

}  // namespace

int doctor(const Options& options, const char* const* environment) {
  const Variables variables(environment);
  if (options.gpu) return ask_health(options, variables);
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

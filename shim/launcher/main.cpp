// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <new>

#include "shim/launcher/commands/commands.h"
#include "shim/launcher/commands/plan.h"
#include "shim/launcher/doctor/doctor.h"
#include "shim/launcher/message.h"
#include "shim/launcher/options.h"

namespace cudaguard::launcher {
namespace {

/// Says it in words that users know, wherever it is caught.
struct NoMemory : std::bad_alloc {
  const char* what() const noexcept override { return strerror(ENOMEM); }
};

int work(int argc, char** argv) {
  const Options options = parse_options(argc, argv);
  switch (options.command) {
    case Options::Command::kRun:
      return carry_out(plan_of_run(options), environ);
    case Options::Command::kDoctor:
      return doctor(options, environ);
    case Options::Command::kVerify:
      return carry_out(plan_of_verify(options), environ);
    case Options::Command::kReport:
      return report(options);
    case Options::Command::kSystem:
      return whole_system(options);
    case Options::Command::kHelp:
      print(help_text(options.help_of));
      return argc < 2 ? kRefused : 0;  // a script with an empty command must not succeed
    case Options::Command::kVersion:
      print("cudaguard " CUDAGUARD_VERSION "\n");
  }
  return 0;
}

}  // namespace
}  // namespace cudaguard::launcher

int main(int argc, char** argv) {
  using namespace cudaguard::launcher;
  remember_stderr();
  std::set_new_handler([] { throw NoMemory(); });
  try {
    return work(argc, argv);
  } catch (const Refusal& refusal) {
    print_message(refusal.what());
    return refusal.code();
  } catch (const std::exception& error) {
    print_message(error.what());
    return kRefused;
  }
}

// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/doctor/program_report.h"

namespace cudaguard::launcher {

ProgramReport examine_program(const std::string&, const Installation&, const Variables&) {
  return {};
}

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>

#include "shim/launcher/doctor/doctor.h"
#include "shim/launcher/message.h"
#include "shim/launcher/options.h"
#include "shim/launcher/run/run.h"

namespace {

using cudaguard::launcher::Options;

int work(int argc, char** argv) {
  const Options options = cudaguard::launcher::parse_options(argc, argv);
  std::string text;
  switch (options.command) {
    case Options::Command::kRun:
      return cudaguard::launcher::run(options, environ);
    case Options::Command::kDoctor:
      return cudaguard::launcher::doctor(options, environ);
    case Options::Command::kHelp:
      text = cudaguard::launcher::help_text();
      break;
    case Options::Command::kVersion:
      text = "cudaguard " CUDAGUARD_VERSION "\n";
      break;
  }
  if (fputs(text.c_str(), stdout) < 0 || fflush(stdout) != 0) {
    throw cudaguard::launcher::Refusal(cudaguard::launcher::kRefused,
                                       std::string("cannot print: ") + strerror(errno));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  cudaguard::launcher::remember_stderr();
  try {
    return work(argc, argv);
  } catch (const cudaguard::launcher::Refusal& refusal) {
    cudaguard::launcher::say(refusal.what());
    return refusal.code();
  } catch (const std::exception& error) {
    cudaguard::launcher::say(error.what());
    return cudaguard::launcher::kRefused;
  }
}

// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/observe/observe.h"

#include <unistd.h>

#include <cerrno>
#include <exception>
#include <optional>

#include "shim/launcher/message.h"
#include "shim/launcher/observe/private_report.h"
#include "shim/launcher/observe/report_reader.h"
#include "shim/launcher/observe/summary.h"
#include "shim/launcher/observe/tree.h"

namespace cudaguard::launcher {

namespace {

/// The program is not this process: what settle() has set for it is for the child.
void name_root(Variables& variables, const std::string& launcher) {
  constexpr const char* kRoot = "CUDAGUARD_ROOT";
  const char* root = variables.get(kRoot);
  if (root != nullptr && launcher == root) variables.set(kRoot, std::to_string(getpid()));
}

void print_summary(ReportReader& reader, const std::string& left) noexcept {
  try {
    reader.finish();
    write_stderr(summary(reader.records(), left));
  } catch (const std::exception& error) {
    say(std::string("--observe: no summary: ") + error.what());
  }
}

}  // namespace

void observe(const std::string& path, char** arguments, Variables& variables,
             const std::string& report) {
  Tree tree;
  std::optional<PrivateReport> own(std::in_place);
  ReportReader reader(own->path(), report);
  variables.set("CUDAGUARD_REPORT", own->path());
  const std::string launcher = std::to_string(getpid());
  tree.start([&] {
    name_root(variables, launcher);
    execve(path.c_str(), arguments, variables.pointers().data());
    return errno;
  });
  tree.wait([&] { reader.read_on(); }, reader.copies());
  if (const int error = tree.start_error(); error != 0) throw cannot_start(path, error);
  print_summary(reader, tree.left());
  own.reset();
  end_as(tree.status());
}

}  // namespace cudaguard::launcher

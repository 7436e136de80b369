// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/observe/observe.h"

#include <exception>

#include "policy/text.h"
#include "policy/variables.h"
#include "shim/launcher/message.h"
#include "shim/launcher/observe/tree.h"
#include "shim/launcher/preload/settings.h"
#include "shim/launcher/print/text.h"

namespace cudaguard::launcher {

namespace {

/// Returns a clause if the program never asked for the GPU that it had for itself, while its
/// children were refused. Otherwise returns an empty string.
std::string idle_root(const Findings& findings, uint32_t pid, const char* name) {
  bool refused = false;
  for (const ObservedProcess& process : findings.processes) {
    if (!process.asked()) continue;
    if (process.pid == pid) return {};
    refused |= !process.refused.empty();
  }
  if (!refused) return {};
  return "the GPU was reserved for process " + std::to_string(pid) + " (" +
         printable(base_name(name)) + "), which did not ask for it";
}

}  // namespace

void observe(const TreeToWatch& wanted) {
  WatchedTree watched;
  try {
    watch_tree(wanted, watched);
    const std::string& unheard = watched.tree.why_unheard;
    if (!unheard.empty()) print_message("--observe: " + printable(unheard));
    for (const std::string& doubt : watched.tree.doubts)
      print_message("--observe: " + printable(doubt));
    const Variables& variables = *wanted.variables;
    const bool alone = is_root(variables) && variables.has(row_of(Variable::kChildren).name);
    write_stderr(text_of_findings(
        watched.findings, watched.tree.left,
        alone ? idle_root(watched.findings, watched.pid, wanted.arguments[0]) : ""));
  } catch (const std::exception& error) {
    if (watched.pid == 0) throw;
    print_message(std::string("--observe: no summary: ") + error.what());
  }
  end_as(watched.status);
}

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/observe/observe.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <exception>
#include <optional>

#include "policy/text.h"
#include "shim/launcher/message.h"
#include "shim/launcher/observe/tree.h"
#include "shim/launcher/observe/tree_report.h"
#include "shim/launcher/observe/witness.h"
#include "shim/launcher/preload/settings.h"
#include "shim/launcher/report/summary.h"

namespace cudaguard::launcher {

namespace {

constexpr const char* kRoot = "CUDAGUARD_ROOT";

/// Does settle() mean the program?
bool is_root(const Variables& variables, const std::string& launcher) {
  const std::string root = variables.get(kRoot) == nullptr ? "" : variables.get(kRoot);
  return root.substr(0, root.find(':')) == launcher;
}

/// A program that was to have the GPU for itself, has not asked for it, and whose children were
/// refused: it only starts others. Empty, or a clause.
std::string idle_root(const Findings& findings, uint32_t pid, const char* name) {
  bool refused = false;
  for (const ObservedProcess& process : findings.processes) {
    if (!process.asked()) continue;
    if (process.pid == pid) return {};
    refused |= !process.refused.empty();
  }
  if (!refused) return {};
  return "the GPU was kept for process " + std::to_string(pid) + " (" + printable(base_name(name)) +
         "), which did not ask for it";
}

void print_summary(TreeReport& report, const std::string& fence_doubt, const Tree& tree,
                   const char* root) noexcept {
  try {
    report.finish();
    for (const std::string& doubt : {report.doubt(), fence_doubt}) {
      if (!doubt.empty()) say("--observe: " + printable(doubt));
    }
    const auto pid = static_cast<uint32_t>(tree.pid());
    write_stderr(summary(report.findings(), tree.left(),
                         root == nullptr ? "" : idle_root(report.findings(), pid, root)));
  } catch (const std::exception& error) {
    say(std::string("--observe: no summary: ") + error.what());
  }
}

}  // namespace

void observe(const std::string& path, char** arguments, Variables& variables,
             const std::string& report, const Fence& fence) {
  Tree tree;
  std::optional<TreeReport> own(report);
  variables.set("CUDAGUARD_REPORT", own->path());
  const std::string launcher = std::to_string(getpid());
  const bool root = is_root(variables, launcher);
  std::optional<Witness> witness;
  if (fence.witness >= 0) {
    witness.emplace(fence.witness, [&](pid_t, std::string_view record) { own->add(record); });
    tree.serve(witness->descriptor(), [&] { return witness->answer(); });
  }
  tree.start([&] {
    // The program is not this process.
    if (root) variables.set(kRoot, root_name());
    execve(path.c_str(), arguments, variables.pointers().data());
    return errno;
  });
  // For somebody who follows the report while the program runs.
  const std::chrono::milliseconds period{own->copies() ? 1000 : 0};
  tree.wait([&] {
    own->read_on();
    return period;
  });
  if (const int error = tree.start_error(); error != 0) throw cannot_start(path, error);
  if (witness) witness->finish();
  const bool alone = root && variables.has("CUDAGUARD_CHILDREN");
  print_summary(*own, witness ? witness->doubt() : fence.unseen, tree,
                alone ? arguments[0] : nullptr);
  own.reset();
  end_as(tree.status());
}

}  // namespace cudaguard::launcher

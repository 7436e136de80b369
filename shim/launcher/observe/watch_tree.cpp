// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/observe/watch_tree.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <optional>

#include "policy/variables.h"
#include "shim/launcher/message.h"
#include "shim/launcher/observe/sample.h"
#include "shim/launcher/observe/trace.h"
#include "shim/launcher/observe/tree.h"
#include "shim/launcher/observe/tree_report.h"
#include "shim/launcher/observe/witness.h"
#include "shim/launcher/preload/settings.h"

namespace cudaguard::launcher {

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

void watch_tree(const TreeToWatch& wanted, WatchedTree& watched) {
  watched.started = now();
  Tree tree;
  TreeReport records(wanted.report);
  Variables& variables = *wanted.variables;
  variables.set(row_of(Variable::kReport).name, records.path());
  // CUDAGUARD_ROOT has this process's number, because without a watch it becomes the program. Here
  // the program is a child: it puts its own number there.
  const bool root = is_root(variables);
  std::optional<Watch> watch;
  if (wanted.counts) {
    variables.set(kHello, "1");
    watch.emplace(records.path());
  }
  std::optional<Witness> witness;
  if (wanted.fence.witness >= 0) {
    witness.emplace(wanted.fence.witness, [&](pid_t pid, std::string_view record) {
      if (watch) watch->note_request(pid);
      records.add(record);
    });
    tree.serve(witness->descriptor(), [&] { return witness->answer(); });
  }
  std::optional<Trace> trace;
  if (wanted.trace) trace.emplace([&](pid_t pid) { watch->note_exec(pid); });
  tree.start(
      [&] {
        if (root) variables.set(row_of(Variable::kRoot).name, root_name());
        execve(wanted.path.c_str(), wanted.arguments, variables.pointers().data());
        return errno;
      },
      trace ? &*trace : nullptr);
  // A reader may follow the user's report while the program runs.
  const std::chrono::milliseconds period{records.copies() ? 1000 : 0};
  tree.wait([&] {
    records.read_on();
    return watch ? watch->sample() : period;
  });
  if (const int error = tree.start_error(); error != 0) throw cannot_start(wanted.path, error);
  watched.pid = tree.pid();
  watched.status = tree.status();
  watched.ended = now();
  if (witness) witness->finish();
  records.finish();
  watched.findings = records.findings();
  if (watch) watched.tree = watch->finish(watched.findings);
  watched.tree.left = tree.left();
  std::vector<std::string>& doubts = watched.tree.doubts;
  if (!records.doubt().empty()) doubts.insert(doubts.begin(), records.doubt());
  if (!wanted.fence.unseen.empty()) doubts.push_back(wanted.fence.unseen);
  if (witness && !witness->doubt().empty()) doubts.push_back(witness->doubt());
}

}  // namespace cudaguard::launcher

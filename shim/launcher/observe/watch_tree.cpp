// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/observe/watch_tree.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <optional>
#include <utility>

#include "policy/variables.h"
#include "shim/launcher/format.h"
#include "shim/launcher/message.h"
#include "shim/launcher/observe/listener.h"
#include "shim/launcher/observe/relief.h"
#include "shim/launcher/observe/sample.h"
#include "shim/launcher/observe/tree.h"
#include "shim/launcher/observe/tree_report.h"
#include "shim/launcher/preload/settings.h"

namespace cudaguard::launcher {

namespace {

void start(Tree& tree, const Prepared& program, Variables& variables, std::vector<int> kept) {
  // CUDAGUARD_ROOT has this process's id, because without a watch this process becomes the program.
  // Here the program is a child, so the child sets its own id.
  const bool root = is_root(variables);
  tree.start(
      [&] {
        if (root) variables.set(row_of(Variable::kRoot).name, root_name());
        execve(program.path.c_str(), program.arguments.data(), variables.pointers().data());
        return errno;
      },
      std::move(kept));
}

/// Call this after Tree::wait().
void note_end(const Tree& tree, const Prepared& program, WatchedTree& watched) {
  if (const int error = tree.start_error(); error != 0) throw cannot_start(program.path, error);
  watched.pid = static_cast<uint32_t>(tree.pid());
  watched.status = tree.status();
  watched.ended = seconds_now();
}

}  // namespace

void record_tree(const Prepared& program, Variables& variables, WatchedTree& watched) {
  Tree tree;
  TreeReport records(program.report, true);
  variables.set(row_of(Variable::kReport).name, records.path());
  start(tree, program, variables, {});
  // A reader may follow the user's report while the program runs, so it is copied regularly.
  const std::chrono::milliseconds period{records.copies() ? 1000 : 0};
  tree.wait([&] {
    records.read_on();
    return period;
  });
  note_end(tree, program, watched);
  records.finish();
  watched.findings = records.findings();
  watched.tree.left = tree.left();
  if (!records.doubt().empty()) watched.tree.doubts.push_back(records.doubt());
}

void watch_tree(const Prepared& program, Variables& variables, const HowToWatch& how,
                WatchedTree& watched) {
  watched.started = seconds_now();
  const bool listens = program.fence.listener >= 0;
  // Before anything that must not be in a second process.
  std::optional<Relief> relief;
  if (listens) relief.emplace(program.fence.listener);
  std::optional<Listener> listener;
  std::optional<Watch> watch;
  std::function<void(pid_t)> at_exec;
  if (how.trace) at_exec = [&](pid_t pid) { watch->note_exec(pid); };
  Tree tree(at_exec);
  TreeReport records(program.report, !listens);
  if (listens) {
    variables.unset(row_of(Variable::kReport).name);
  } else {
    variables.set(row_of(Variable::kReport).name, records.path());
  }
  variables.set(kHello, "1");
  // A program that has got an answer from Relief may call execve at once, so what Relief has
  // received is taken before the new program is looked at.
  watch.emplace(records.path(), [&] {
    if (relief) relief->note_progress();
    if (listener) listener->take_over();
  });
  const auto take = [&](const Identity& who, std::optional<Beacon> what, std::string_view record) {
    if (what == Beacon::kStart) watch->note_start(who);
    if (!what && who.stat.started != 0) watch->note_request(who.pid);
    const bool is_attempt = records.add(record, who);
    return is_attempt || what == Beacon::kStart || what == Beacon::kAllowed ||
           what == Beacon::kRefused || what == Beacon::kExposed;
  };
  std::vector<int> kept = how.kept;
  if (listens) {
    listener.emplace(program.fence.listener, *relief, take);
    const std::vector<int> open = listener->descriptors();
    kept.insert(kept.end(), open.begin(), open.end());
    tree.serve(listener->descriptor(), [&] { return listener->answer(); });
  }
  start(tree, program, variables, std::move(kept));
  tree.wait([&] {
    if (relief) relief->note_progress();
    if (listener) listener->take_over();
    records.read_on();
    return watch->sample();
  });
  note_end(tree, program, watched);
  if (listener) listener->finish();
  records.finish();
  watched.findings = records.findings();
  watch->note_program(tree.pid(), program.path);
  watched.tree = watch->finish(watched.findings);
  watched.tree.by_file = !listens;
  watched.tree.why_unheard = program.fence.unseen;
  watched.tree.left = tree.left();
  std::vector<std::string>& doubts = watched.tree.doubts;
  if (!records.doubt().empty()) doubts.insert(doubts.begin(), records.doubt());
  const Findings& found = watched.findings;
  if (const uint64_t damaged = found.torn + found.not_understood; damaged != 0) {
    doubts.push_back(counted(damaged, "record") + (damaged == 1 ? " is damaged" : " are damaged"));
  }
  if (listener) {
    for (const std::string& doubt : listener->doubts()) doubts.push_back(doubt);
  }
}

}  // namespace cudaguard::launcher

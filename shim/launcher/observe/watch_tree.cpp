// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/observe/watch_tree.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <string_view>
#include <utility>

#include "policy/text.h"
#include "policy/variables.h"
#include "shim/launcher/elf/program.h"
#include "shim/launcher/findings/records.h"
#include "shim/launcher/findings/verdict.h"
#include "shim/launcher/message.h"
#include "shim/launcher/observe/listener.h"
#include "shim/launcher/observe/private_report.h"
#include "shim/launcher/observe/starts.h"
#include "shim/launcher/observe/tree.h"
#include "shim/launcher/preload/given_rules.h"
#include "shim/launcher/preload/machine_rules.h"
#include "shim/launcher/preload/preload.h"
#include "shim/launcher/preload/settings.h"

namespace cudaguard::launcher {

namespace {

/// `Starts` keeps a descriptor of each program that may have ended in ld.so. The program that was
/// started has its own limit.
void allow_descriptors() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

void start(Tree& tree, const Prepared& program, Variables& variables, std::vector<int> kept) {
  // CUDAGUARD_ROOT has this process's id, because without a watch this process becomes the program.
  // Here the program is a child, so the child sets its own id.
  const bool is_first = is_first_process(variables);
  tree.start(
      [&] {
        if (is_first) variables.set(row_of(Variable::kFirstProcess).name, name_of_this_process());
        return become(program, variables);
      },
      std::move(kept));
}

/// The path of the guard in LD_PRELOAD; empty if there is none.
std::string guard_in(const Variables& variables) {
  for (std::string& entry : preload_entries(variables.get("LD_PRELOAD"))) {
    if (base_name(entry) == "libcudaguard.so") return std::move(entry);
  }
  return {};
}

/// Call this after Tree::wait().
void note_end(const Tree& tree, const Prepared& program, WatchedTree& watched) {
  if (const int error = tree.start_error(); error != 0) throw cannot_start(program.path, error);
  watched.pid = static_cast<uint32_t>(tree.pid());
  watched.status = tree.status();
  watched.ended = seconds_now();
}

/// Without a report, no records are read.
void wait_for_tree(const Prepared& program, Variables& variables, const std::vector<int>& kept,
                   std::optional<PrivateReport>& report, WatchedTree& watched) {
  Tree tree(program.grace);
  if (report) variables.set(row_of(Variable::kReport).name, report->path());
  start(tree, program, variables, kept);
  // A reader may follow the user's report while the program runs, so it is copied regularly.
  const std::chrono::milliseconds period{report && !program.report.empty() ? 1000 : 0};
  tree.wait([&] {
    if (report) report->read_on();
    return period;
  });
  note_end(tree, program, watched);
  watched.tree.left = tree.left();
  if (!report) return;
  report->finish();
  watched.findings = report->findings();
  if (!report->doubt().empty()) watched.tree.doubts.push_back(report->doubt());
  if (!reports_of(variables).empty() || MachineRules().name_report()) {
    watched.tree.doubts.emplace_back(
        "a rule has report=, so the records of the processes to which it applies are missing");
  }
}

}  // namespace

int become(const Prepared& program, Variables& variables) {
  const std::vector<char*> environment = variables.pointers();
  execve(program.path.c_str(), program.arguments.data(), environment.data());
  if (errno == ENOEXEC && !program.by_shell.empty()) {
    execve(kShell, program.by_shell.data(), environment.data());
  }
  return errno;
}

void record_tree(const Prepared& program, Variables& variables, WatchedTree& watched) {
  std::optional<PrivateReport> report(std::in_place, program.report);
  wait_for_tree(program, variables, {}, report, watched);
}

void watch_tree(const Prepared& program, Variables& variables, const std::vector<int>& kept,
                WatchedTree& watched) {
  watched.started = seconds_now();
  watched.tree.why_unheard = program.fence.unseen;
  variables.set(kHello, "1");
  if (program.fence.listener < 0) {
    watched.tree.value = TreeTruth::Value::kNotWatched;
    watched.tree.doubts.push_back(program.fence.unseen);
    std::optional<PrivateReport> report;
    try {
      report.emplace(program.report);
    } catch (const Refusal& refusal) {
      watched.tree.doubts.emplace_back(refusal.what());
    }
    wait_for_tree(program, variables, kept, report, watched);
    return;
  }
  Keeper& keeper = *program.keeper;
  Tree tree(program.grace);
  UserReport report(program.report);
  Records records;
  std::optional<Listener> listener;
  variables.unset(row_of(Variable::kReport).name);
  Starts starts(guard_in(variables), program.unguarded);
  listener.emplace(
      program.fence.listener, keeper,
      [&](const Identity& who, auto what, auto record, const NativeStack& native) {
        const Records::Sender sender = {static_cast<uint32_t>(who.pid),
                                        static_cast<uint32_t>(who.stat.parent),
                                        who.stat.started,
                                        who.stat.image,
                                        native,
                                        starts.started_by(who.pid)};
        const bool is_attempt = records.add(record, report.take(sender.native), &sender);
        return is_attempt || what == Beacon::kStart || what == Beacon::kAllowed ||
               what == Beacon::kRefused || what == Beacon::kExposed;
      },
      [&](const Identity& who, bool off) { return starts.note_beacon(who, off); },
      [&](const Identity& who, const seccomp_data& call, const auto& go_on) {
        Start start = starts.read(who, call);
        if (go_on()) starts.note_call(who, std::move(start));
      });
  tree.wake_by([&] { return listener->descriptor(); });
  std::vector<int> open = kept;
  open.insert(open.end(), {listener->descriptor(), keeper.descriptor()});
  keeper.listen();
  start(tree, program, variables, std::move(open));
  allow_descriptors();
  tree.wait([&] {
    listener->answer();
    return starts.look();
  });
  note_end(tree, program, watched);
  listener->finish();
  keeper.end(!tree.left().empty() || !has_own_numbers());
  watched.findings = records.findings();
  watched.tree = starts.finish(watched.findings);
  watched.tree.why_unheard = program.fence.unseen;
  if (!program.fence.unseen.empty()) watched.tree.doubts.push_back(program.fence.unseen);
  watched.tree.left = tree.left();
  if (!program.fence.execs) {
    watched.tree.doubts.emplace_back(
        "programs may be missing: the kernel does not report each start (Linux 5.5)");
  }
  for (const std::string& doubt : listener->doubts()) watched.tree.doubts.push_back(doubt);
}

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <exception>
#include <string>
#include <vector>

#include "policy/text.h"
#include "policy/variables.h"
#include "shim/launcher/commands/commands.h"
#include "shim/launcher/commands/set_up.h"
#include "shim/launcher/findings/decide.h"
#include "shim/launcher/findings/symbols.h"
#include "shim/launcher/message.h"
#include "shim/launcher/observe/tree.h"
#include "shim/launcher/preload/settings.h"
#include "shim/launcher/print/output.h"
#include "shim/launcher/print/print.h"

namespace cudaguard::launcher {

namespace {

/// For --print.
void print_variables(const Variables& variables, const Fence& fence) {
  print(variables.changes());
  if (!fence.holds || fence.was_there) return;
  print(std::string("# --fence is not among these: only cudaguard run sets it up") +
        (fence.no_new_privs ? ", and sets no_new_privs:\n# sudo and setuid programs inside gain no "
                              "rights"
                            : "") +
        "\n");
}

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

/// Waits for the program and its descendants, prints which processes used CUDA, and ends with the
/// program's exit status.
[[noreturn]] void list_attempts(Prepared& prepared, Variables& variables) {
  WatchedTree watched;
  try {
    record_tree(prepared, variables, watched);
    for (const std::string& doubt : watched.tree.doubts) {
      print_message("--observe: " + printable(doubt));
    }
    const bool alone = is_root(variables) && variables.has(row_of(Variable::kChildren).name);
    write_stderr(text_of_findings(
        watched.findings, watched.tree.left,
        alone ? idle_root(watched.findings, watched.pid, prepared.arguments[0]) : ""));
  } catch (const std::exception& error) {
    if (watched.pid == 0) throw;
    print_message(std::string("--observe: no summary: ") + error.what());
  }
  end_as(watched.status);
}

/// Unblocks the signals that the watched tree has blocked, because a pipe's reader may never read.
void let_signals_end_this_process() {
  sigset_t ends;
  sigemptyset(&ends);
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM}) sigaddset(&ends, number);
  sigprocmask(SIG_UNBLOCK, &ends, nullptr);
}

int decide_about(const Plan& plan, Prepared& prepared, Variables& variables) {
  std::vector<TakenFile> taken = taken_by_program(prepared.files, plan.program);
  taken.push_back({prepared.report, "is the file of the records"});
  OutputFile json("--json", plan.files.json, plan.files.force, taken);
  OutputFile junit("--junit", plan.files.junit, plan.files.force, taken);
  OutputFile html("--html", plan.files.html, plan.files.force, taken);
  const std::vector<int> pipes = {json.descriptor(), junit.descriptor(), html.descriptor()};
  Verdict verdict;
  for (char** word = plan.program; *word != nullptr; ++word) verdict.command.emplace_back(*word);
  watch_tree(prepared, variables, {.trace = plan.trace, .kept = pipes}, verdict);
  verdict.no_new_privs = prepared.fence.no_new_privs;
  verdict.allow = plan.allow;
  verdict.allow_incomplete = plan.allow_incomplete;
  verdict.deny = plan.deny;
  name_frames(verdict.findings, variables.get("PATH"));
  decide(verdict);
  const std::string text = text_of_verdict(verdict);
  write_stderr(text);
  if (std::ranges::max(pipes) >= 0) let_signals_end_this_process();
  bool all = true;
  const auto write = [&](OutputFile& file, const auto& result) {
    try {
      if (file) file.write(result());
    } catch (const Refusal& refusal) {
      print_message(refusal.what());
      all = false;
    }
  };
  write(json, [&] { return document(verdict); });
  write(junit, [&] { return junit_of(verdict, text); });
  write(html, [&] { return page_of_verdict(verdict, text); });
  return all || verdict.touched != 0 ? verdict.exit_code : kRefused;
}

}  // namespace

int carry_out(const Plan& plan, const char* const* environment) {
  using Watch = Plan::Watch;
  try {
    Variables variables(environment);
    Prepared prepared = set_up(plan, variables);
    if (plan.settings.print) {
      print_variables(variables, prepared.fence);
      return 0;
    }
    if (plan.watch == Watch::kAttempts) list_attempts(prepared, variables);
    if (plan.watch == Watch::kProcesses) return decide_about(plan, prepared, variables);
    execve(prepared.path.c_str(), prepared.arguments.data(), variables.pointers().data());
    throw cannot_start(prepared.path, errno);
  } catch (const Refusal& refusal) {
    if (plan.watch != Watch::kProcesses) throw;
    throw Refusal(kRefused, refusal.what());  // also for 126 and 127, because nothing was verified
  }
}

}  // namespace cudaguard::launcher

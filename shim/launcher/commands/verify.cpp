// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <csignal>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "shim/launcher/commands/commands.h"
#include "shim/launcher/findings/decide.h"
#include "shim/launcher/findings/symbols.h"
#include "shim/launcher/message.h"
#include "shim/launcher/print/output.h"
#include "shim/launcher/print/print.h"

namespace cudaguard::launcher {

namespace {

/// Sets FORCE_CPU in every process and no presets. With CUDA_VISIBLE_DEVICES="" a framework might
/// not call the driver at all, and pass here but not with the variable unset.
Options options_of_run(Options options) {
  options.cpu = true;
  options.no_presets = true;
  options.observe = true;
  if (!options.fence) options.fence = FenceWish::kAuto;
  return options;
}

/// Unblocks the signals that the watched tree has blocked, because a pipe's reader may never read.
void let_signals_end_this_process() {
  sigset_t ends;
  sigemptyset(&ends);
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM}) sigaddset(&ends, number);
  sigprocmask(SIG_UNBLOCK, &ends, nullptr);
}

int verify_it(const Options& options, const char* const* environment) {
  const std::set<DriverApi> deny = denied_words(options.deny);
  check_patterns(options.allow);
  Variables variables(environment);
  Prepared prepared = prepare(options_of_run(options), variables);
  std::vector<TakenFile> taken = taken_by_program(prepared.files, options.program);
  taken.push_back({prepared.report, "is the file of the records"});
  OutputFile json("--json", options.json_file, options.force, taken);
  OutputFile junit("--junit", options.junit_file, options.force, taken);
  OutputFile html("--html", options.html_file, options.force, taken);
  const std::vector<int> pipes = {json.descriptor(), junit.descriptor(), html.descriptor()};
  Verdict verdict;
  for (char** word = options.program; *word != nullptr; ++word) verdict.command.emplace_back(*word);
  watch_tree(prepared, variables, {.counts = true, .trace = options.trace, .kept = pipes}, verdict);
  verdict.no_new_privs = prepared.fence.no_new_privs;
  verdict.allow = options.allow;
  verdict.allow_incomplete = options.allow_incomplete;
  verdict.deny = deny;
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

int verify(const Options& options, const char* const* environment) {
  try {
    return verify_it(options, environment);
  } catch (const Refusal& refusal) {
    throw Refusal(kRefused, refusal.what());  // also for 126 and 127, because nothing was verified
  }
}

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/commands/result.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <string_view>
#include <utility>

#include "shim/launcher/findings/decide.h"
#include "shim/launcher/findings/symbols.h"
#include "shim/launcher/findings/verdict.h"
#include "shim/launcher/message.h"
#include "shim/launcher/print/print.h"

namespace cudaguard::launcher {

namespace {

/// Unblocks the signals that the watched tree has blocked, because a pipe's reader may never read.
void let_signals_end_this_process() {
  sigset_t ends;
  sigemptyset(&ends);
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM}) sigaddset(&ends, number);
  sigprocmask(SIG_UNBLOCK, &ends, nullptr);
}

/// True for a terminal that shows colour, unless NO_COLOR is set (no-color.org).
bool shows_colour(int fd, const Variables& variables) {
  const auto value = [&](const char* name) {
    const char* const text = variables.get(name);
    return std::string_view(text == nullptr ? "" : text);
  };
  const std::string_view kind = value("TERM");
  return isatty(fd) != 0 && value("NO_COLOR").empty() && !kind.empty() && kind != "dumb";
}

}  // namespace

Result::Result(const Plan& plan, std::vector<TakenFile> taken)
    : plan_(plan),
      taken_(std::move(taken)),
      json_("--json", plan.files.json, plan.files.force, taken_),
      junit_("--junit", plan.files.junit, plan.files.force, taken_),
      html_("--html", plan.files.html, plan.files.force, taken_) {}

std::vector<int> Result::descriptors() const {
  return {json_.descriptor(), junit_.descriptor(), html_.descriptor()};
}

int Result::give(Verdict& verdict, const Variables& variables) {
  for (char** word = plan_.program; *word != nullptr; ++word) verdict.command.emplace_back(*word);
  verdict.allow = plan_.allow;
  verdict.allow_incomplete = plan_.allow_incomplete;
  verdict.strict = plan_.strict_result;
  verdict.deny = plan_.deny;
  name_frames(verdict.findings, variables.get("PATH"));
  decide(verdict);
  const std::string text = text_of_verdict(verdict);
  write_stderr(shows_colour(STDERR_FILENO, variables) ? in_colour(verdict, text) : text);
  if (std::ranges::max(descriptors()) >= 0) let_signals_end_this_process();
  bool all = true;
  const auto write = [&](OutputFile& file, const auto& result) {
    try {
      if (file) file.write(result());
    } catch (const Refusal& refusal) {
      print_message(refusal.what());
      all = false;
    }
  };
  write(json_, [&] { return document(verdict); });
  write(junit_, [&] { return junit_of(verdict, text); });
  write(html_, [&] { return page_of_verdict(verdict, text); });
  return all || verdict.asked != 0 ? verdict.exit_code : kRefused;
}

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/commands/verify.h"

#include <set>
#include <string>
#include <utility>

#include "shim/launcher/commands/run.h"
#include "shim/launcher/findings/decide.h"
#include "shim/launcher/message.h"
#include "shim/launcher/observe/watch_tree.h"
#include "shim/launcher/print/document.h"
#include "shim/launcher/print/junit.h"
#include "shim/launcher/print/output.h"
#include "shim/launcher/print/page.h"
#include "shim/launcher/print/text.h"

namespace cudaguard::launcher {

namespace {

/// Every process under FORCE_CPU, whatever the environment says. No presets: a framework that
/// reads CUDA_VISIBLE_DEVICES="" and asks nobody would pass here, and not where it is unset.
Options options_of_run(Options options) {
  options.cpu = true;
  options.no_presets = true;
  options.observe = true;
  if (!options.fence) options.fence = FenceWish::kAuto;
  return options;
}

void empty_outputs(const Options& options) {
  std::set<std::string> files;
  for (const auto& [option, file] :
       {std::pair("--json", &options.json_file), std::pair("--junit", &options.junit_file),
        std::pair("--html", &options.html_file)}) {
    if (*file && !files.insert(**file).second) {
      throw Refusal(kRefused, std::string(option) + " " + in_quotes(**file) +
                                  ": another result is written to that file");
    }
    empty_output(option, *file);
  }
}

Verdict run_tree(const Options& options, Variables& variables) {
  Verdict verdict;
  const Prepared prepared = prepare(options_of_run(options), variables);
  for (char** word = options.program; *word != nullptr; ++word) verdict.command.emplace_back(*word);
  empty_outputs(options);
  WatchedTree watched;
  watch_tree({.path = prepared.path,
              .arguments = options.program,
              .variables = &variables,
              .report = prepared.report,
              .fence = prepared.fence,
              .counts = true,
              .trace = options.trace},
             watched);
  verdict.started = watched.started;
  verdict.ended = watched.ended;
  verdict.status = watched.status;
  verdict.no_new_privs = prepared.fence.no_new_privs;
  verdict.findings = std::move(watched.findings);
  verdict.tree = std::move(watched.tree);
  return verdict;
}

int verify_it(const Options& options, const char* const* environment) {
  const std::set<Asked> deny = denied_words(options.deny);
  Variables variables(environment);
  Verdict verdict = run_tree(options, variables);
  verdict.allow = options.allow;
  verdict.allow_incomplete = options.allow_incomplete;
  verdict.deny = deny;
  decide(verdict);
  Symbols symbols;
  const std::string text = text_of_verdict(verdict, symbols);
  write_stderr(text);
  try {
    if (options.json_file) {
      write_output("--json", *options.json_file, document(verdict, symbols));
    }
    if (options.junit_file) write_output("--junit", *options.junit_file, junit(verdict, text));
    if (options.html_file) {
      write_output("--html", *options.html_file, page_of_verdict(verdict, symbols, text));
    }
  } catch (const Refusal& refusal) {
    if (verdict.touched == 0) throw;
    say(refusal.what());
  }
  return verdict.exit_code;
}

}  // namespace

int verify(const Options& options, const char* const* environment) {
  try {
    return verify_it(options, environment);
  } catch (const Refusal& refusal) {
    throw Refusal(kRefused, refusal.what());  // 126 and 127, too: nothing was verified
  }
}

}  // namespace cudaguard::launcher

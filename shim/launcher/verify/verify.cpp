// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/verify/verify.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "shim/launcher/message.h"
#include "shim/launcher/observe/sample.h"
#include "shim/launcher/observe/trace.h"
#include "shim/launcher/observe/tree.h"
#include "shim/launcher/observe/tree_report.h"
#include "shim/launcher/observe/witness.h"
#include "shim/launcher/report/output.h"
#include "shim/launcher/report/page.h"
#include "shim/launcher/run/run.h"
#include "shim/launcher/verify/decide.h"
#include "shim/launcher/verify/document.h"
#include "shim/launcher/verify/junit.h"
#include "shim/launcher/verify/text.h"

namespace cudaguard::launcher {

namespace {

constexpr int kTouched = 1;
constexpr int kProgramFailed = 2;

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Every process under FORCE_CPU, whatever the environment says. No presets: a framework that
/// reads CUDA_VISIBLE_DEVICES="" and asks nobody would pass here, and not where it is unset.
Options options_of_run(Options options) {
  options.cpu = true;
  options.no_presets = true;
  options.observe = true;
  if (!options.fence) options.fence = "auto";
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
  verdict.started = now();
  Tree tree;
  TreeReport records(prepared.report);
  variables.set(row_of(Variable::kReport).name, records.path());
  variables.set(kHello, "1");
  Watch watch(records.path());
  std::optional<Witness> witness;
  if (prepared.fence.witness >= 0) {
    witness.emplace(prepared.fence.witness, [&](pid_t pid, std::string_view record) {
      watch.note_request(pid);
      records.add(record);
    });
    tree.serve(witness->descriptor(), [&] { return witness->answer(); });
  }
  std::optional<Trace> trace;
  if (options.trace) trace.emplace([&](pid_t pid) { watch.note_exec(pid); });
  tree.start(
      [&] {
        execve(prepared.path.c_str(), options.program, variables.pointers().data());
        return errno;
      },
      trace ? &*trace : nullptr);
  tree.wait([&] {
    records.read_on();
    return watch.sample();
  });
  if (const int error = tree.start_error(); error != 0) throw cannot_start(prepared.path, error);
  if (witness) witness->finish();
  records.finish();
  verdict.ended = now();
  verdict.status = tree.status();
  verdict.no_new_privs = prepared.fence.no_new_privs;
  verdict.findings = records.findings();
  verdict.tree = watch.finish(verdict.findings, tree.left(), records.doubt());
  for (const std::string& doubt : {prepared.fence.unseen, witness ? witness->doubt() : ""}) {
    if (!doubt.empty()) verdict.tree.doubts.push_back(doubt);
  }
  return verdict;
}

int verify_it(const Options& options, const char* const* environment) {
  const std::set<Asked> deny = denied_words(options.deny);
  Variables variables(environment);
  Verdict verdict = run_tree(options, variables);
  verdict.allow = options.allow;
  verdict.deny = deny;
  decide(verdict);
  Symbols symbols;
  const std::string text = text_of_verdict(verdict, symbols);
  write_stderr(text);
  const int code = verdict.touched ? kTouched : verdict.status == 0 ? 0 : kProgramFailed;
  try {
    if (options.json_file) {
      write_output("--json", *options.json_file, document(verdict, code, symbols));
    }
    if (options.junit_file) write_output("--junit", *options.junit_file, junit(verdict, text));
    if (options.html_file) {
      write_output("--html", *options.html_file, page_of_verdict(verdict, code, symbols, text));
    }
  } catch (const Refusal& refusal) {
    if (!verdict.touched) throw;
    say(refusal.what());
  }
  return code;
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

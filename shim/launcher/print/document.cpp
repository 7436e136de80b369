// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/print/document.h"

#include <sys/wait.h>

#include <set>
#include <string>

#include "shim/launcher/print/json.h"
#include "shim/launcher/print/text.h"

namespace cudaguard::launcher {

namespace {

const char* word_of(TreeTruth::Value value) {
  switch (value) {
    case TreeTruth::Value::kAllGuarded:
      return "all_guarded";
    case TreeTruth::Value::kNoneSeen:
      return "none_seen";
    case TreeTruth::Value::kUnguarded:
      break;
  }
  return "unguarded";
}

void put_program(Json& json, int status) {
  json.key("program").begin_object().key("exit_code");
  if (WIFSIGNALED(status)) {
    json.null().field("signal", WTERMSIG(status));
  } else {
    json.value(WEXITSTATUS(status)).key("signal").null();
  }
  json.end_object();
}

void put_touchers(Json& json, const Verdict& verdict, Symbols& symbols, size_t most_stacks) {
  const Findings& findings = verdict.findings;
  const std::set<size_t> with_stacks = touchers_with_stacks(findings, most_stacks);
  json.key("touchers").begin_array();
  for (size_t i = 0; i < findings.touchers.size(); ++i) {
    Toucher toucher = findings.touchers[i];
    if (!with_stacks.contains(i)) toucher.stack = {};
    const FrameTexts texts = {
        [&](const PythonFrame& frame) { return source_of(findings, toucher, frame); },
        [&](const NativeFrame& frame) { return symbols.name_of(frame); }};
    json.begin_object();
    put_members(json, toucher, &texts);
    json.field("fails", !toucher.forbidden.empty())
        .list("forbidden", toucher.forbidden)
        .end_object();
  }
  json.end_array();
}

void put_places(Json& json, const Findings& findings) {
  json.key("places").begin_array();
  for (const Place& place : findings.places) {
    json.begin_object();
    put_members(json, place);
    json.field("fails", !place.forbidden.empty()).list("forbidden", place.forbidden).end_object();
  }
  json.end_array();
}

void put_tree(Json& json, const Verdict& verdict) {
  const TreeTruth& tree = verdict.tree;
  json.key("tree")
      .begin_object()
      .field("value", word_of(tree.value))
      .field("traced", tree.traced)
      .field("by", tree.by_file ? "file" : "beacon")
      .field("heard", verdict.heard)
      .field_or_null("why_unheard", tree.why_unheard)
      .field("start_records", tree.hello)
      .field("seen", tree.seen.size())
      .key("unguarded")
      .begin_array();
  for (const TreeTruth::Unguarded& one : tree.unguarded) {
    json.begin_object()
        .field("pid", one.pid)
        .field("command", one.command)
        .field("reason", one.reason)
        .field("has_driver", one.has_driver)
        .field("fails", one.fails)
        .field("only_nvml", one.only_nvml)
        .field_or_null("at", one.seen)
        .end_object();
  }
  json.end_array()
      .field_or_null("not_waited_for", tree.left)
      .list("doubts", tree.doubts)
      .key("processes")
      .begin_array();
  for (const TreeTruth::Seen& one : tree.seen) {
    json.begin_object()
        .field("pid", one.pid)
        .field("ppid", one.ppid)
        .field("command", one.command)
        .field_or_null("first", one.first)
        .field_or_null("last", one.last)
        .field("guarded", one.guarded)
        .field("heard", one.heard)
        .end_object();
  }
  json.end_array().end_object();
}

std::string_view word_of(Verdict::Result result) {
  using Result = Verdict::Result;
  return result == Result::kPass ? "pass" : result == Result::kFail ? "fail" : "incomplete";
}

}  // namespace

std::string document(const Verdict& verdict, Symbols& symbols, unsigned indent,
                     size_t most_stacks) {
  const Findings& findings = verdict.findings;
  Json json(indent);
  json.begin_object()
      .field("v", 1)
      .field("cudaguard", CUDAGUARD_VERSION)
      .field("verdict", word_of(verdict.result))
      .field("exit_code", verdict.exit_code)
      .field("touched", verdict.touched != 0)
      .list("command", verdict.command);
  put_program(json, verdict.status);
  json.field("started", verdict.started).field("ended", verdict.ended);
  put_asked(json, "deny", verdict.deny);
  json.list("allow", verdict.allow);
  put_places(json, findings);
  put_touchers(json, verdict, symbols, most_stacks);
  json.key("processes").begin_array();
  for (const ObservedProcess& process : findings.processes) put(json, process);
  json.end_array();
  put_tree(json, verdict);
  put_records(json, findings);
  json.field("result", result_line(verdict))
      .key("counts")
      .begin_object()
      .field("processes", verdict.processes)
      .field("touched", verdict.touched)
      .field("allowed", verdict.allowed)
      .field("places", verdict.places)
      .field("lines", verdict.lines)
      .end_object()
      .list("notes", notes_of(verdict))
      .field("no_new_privs", verdict.no_new_privs)
      .end_object();
  return json.text() + "\n";
}

}  // namespace cudaguard::launcher

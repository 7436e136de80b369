// SPDX-License-Identifier: Apache-2.0
#include <sys/wait.h>

#include <algorithm>
#include <string>

#include "shim/launcher/findings/groups.h"
#include "shim/launcher/findings/verdict.h"
#include "shim/launcher/print/json.h"
#include "shim/launcher/print/print.h"

namespace cudaguard::launcher {

namespace {

const char* word_of(TreeTruth::Value value) {
  constexpr const char* kWords[] = {"not_watched", "all_guarded", "unguarded", "unknown"};
  return kWords[static_cast<size_t>(value)];
}

const char* word_of(Verdict::Result result) {
  constexpr const char* kWords[] = {"pass", "fail", "incomplete"};
  return kWords[static_cast<size_t>(result)];
}

void put_program(Json& json, int status) {
  const bool killed = WIFSIGNALED(status);
  json.key("program")
      .begin_object()
      .field_if(!killed, "exit_code", WEXITSTATUS(status))
      .field_if(killed, "signal", WTERMSIG(status))
      .end_object();
}

void put_programs(Json& json, const char* name, const std::vector<TreeTruth::Unguarded>& programs) {
  json.objects(name, programs, [&](const TreeTruth::Unguarded& one) {
    json.field("pid", one.pid)
        .field("program", name_of(one))
        .field("command", one.command.shown())
        .field("reason", one.reason)
        .field("has_driver", one.has_driver)
        .field("names_nvidia", one.names_nvidia)
        .field("fails", one.fails)
        .field("in_doubt", one.in_doubt)
        .field("only_nvml", one.only_nvml)
        .field_or_null("at", one.seen);
  });
}

void put_tree(Json& json, const Verdict& verdict) {
  const TreeTruth& tree = verdict.tree;
  const auto has_start = [](const ObservedProcess& process) { return process.started != 0; };
  json.key("tree")
      .begin_object()
      .field("value", word_of(tree.value))
      .field("heard", verdict.heard)
      .field_or_null("why_unheard", tree.why_unheard)
      .field("start_records", std::ranges::count_if(verdict.findings.processes, has_start))
      .field("seen", tree.seen.size())
      .field("started", tree.started())
      .field("guarded", tree.guarded);
  put_programs(json, "unguarded", tree.unguarded);
  put_programs(json, "unknown", tree.unknown);
  json.objects("programs", groups_of(tree),
               [&](const ProgramGroup& group) {
                 const TreeTruth::Unguarded& one = *group.first;
                 json.field("program", name_of(one))
                     .field("starts", group.starts)
                     .field("kind", group.known ? "unguarded" : "unknown")
                     .field("reason", one.reason)
                     .field("has_driver", one.has_driver)
                     .field("only_nvml", one.only_nvml)
                     .field("fails", one.fails)
                     .field("in_doubt", one.in_doubt);
               })
      .field_or_null("not_waited_for", tree.left)
      .list("doubts", tree.doubts)
      .objects("processes", tree.seen,
               [&](const TreeTruth::Seen& one) {
                 json.field("pid", one.pid)
                     .field("ppid", one.ppid)
                     .field("command", one.command.shown())
                     .field_or_null("first", one.first)
                     .field_or_null("last", one.last)
                     .field("guarded", one.guarded)
                     .field("heard", one.heard);
               })
      .end_object();
}

}  // namespace

std::string document(const Verdict& verdict, unsigned indent, size_t most_stacks) {
  const Findings& findings = verdict.findings;
  Json json(indent);
  json.begin_object()
      .field("v", 1)
      .field("cudaguard", CUDAGUARD_VERSION)
      .field("verdict", word_of(verdict.result))
      .field("exit_code", verdict.exit_code)
      .field("asked", verdict.asked != 0)
      .list("command", verdict.command);
  put_program(json, verdict.status);
  json.field("started", verdict.started).field("ended", verdict.ended);
  put_asked(json, "deny", verdict.deny);
  json.list("allow", verdict.allow);
  put_findings(json, findings, most_stacks, SIZE_MAX, true);
  put_tree(json, verdict);
  put_records(json, findings);
  json.field("result", result_line(verdict))
      .key("counts")
      .begin_object()
      .field("processes", verdict.processes)
      .field("asked", verdict.asked)
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

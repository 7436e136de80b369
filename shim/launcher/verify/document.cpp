// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/verify/document.h"

#include <sys/wait.h>

#include "shim/launcher/report/json.h"
#include "shim/launcher/verify/decide.h"

namespace cudaguard::launcher {

namespace {

Json or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

/// With what the files say: source lines, names of functions.
Json json_of(const Verdict& verdict, const Toucher& toucher, bool fails, Symbols& symbols) {
  Json result = json_of(toucher);
  const Stack& stack = toucher.stack;
  for (size_t i = 0; i < stack.python.size(); ++i) {
    result["python"][i]["source"] = or_null(source_of(verdict.findings, toucher, stack.python[i]));
  }
  for (size_t i = 0; i < stack.native.size(); ++i) {
    result["native"][i]["symbol"] = or_null(symbols.name_of(stack.native[i]));
  }
  result["fails"] = fails;
  result["forbidden"] = toucher.forbidden;
  return result;
}

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

Json json_of_tree(const Verdict& verdict) {
  const TreeTruth& tree = verdict.tree;
  Json unguarded = Json::array();
  for (const TreeTruth::Unguarded& one : tree.unguarded) {
    unguarded.push_back({{"pid", one.pid},
                         {"command", one.command},
                         {"reason", one.reason},
                         {"has_driver", one.has_driver},
                         {"fails", one.fails}});
  }
  return {{"value", word_of(tree.value)}, {"traced", tree.traced},
          {"start_records", tree.hello},  {"seen", tree.seen.size()},
          {"unguarded", unguarded},       {"not_waited_for", or_null(tree.left)},
          {"doubts", tree.doubts}};
}

}  // namespace

std::string document(const Verdict& verdict, int exit_code, Symbols& symbols) {
  const Findings& findings = verdict.findings;
  const int status = verdict.status;
  Json touchers = Json::array();
  for (size_t i = 0; i < findings.touchers.size(); ++i) {
    touchers.push_back(
        json_of(verdict, findings.touchers[i], !findings.touchers[i].forbidden.empty(), symbols));
  }
  Json processes = Json::array();
  for (const ObservedProcess& process : findings.processes) processes.push_back(json_of(process));
  Json deny = Json::array();
  for (const Asked asked : verdict.deny) deny.push_back(word_of(asked));
  const Json result = {{"v", 1},
                       {"cudaguard", CUDAGUARD_VERSION},
                       {"verdict", verdict.passed() ? "pass" : "fail"},
                       {"exit_code", exit_code},
                       {"touched", verdict.touched != 0},
                       {"command", verdict.command},
                       {"program",
                        {{"exit_code", WIFSIGNALED(status) ? Json() : Json(WEXITSTATUS(status))},
                         {"signal", WIFSIGNALED(status) ? Json(WTERMSIG(status)) : Json()}}},
                       {"started", verdict.started},
                       {"ended", verdict.ended},
                       {"deny", deny},
                       {"allow", verdict.allow},
                       {"touchers", touchers},
                       {"processes", processes},
                       {"tree", json_of_tree(verdict)},
                       {"records",
                        {{"read", findings.records},
                         {"torn", findings.torn},
                         {"not_understood", findings.not_understood}}}};
  return text_of_json(result, 1) + "\n";
}

}  // namespace cudaguard::launcher

// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/verify/decide.h"

#include <fnmatch.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "policy/text.h"
#include "shim/launcher/message.h"

namespace cudaguard::launcher {

namespace {

Asked asked_of(std::string_view word) {
  if (word == "init") return Asked::kCuda;
  if (word == "nvml") return Asked::kNvml;
  if (word == "opencl") return Asked::kOpenCl;
  throw Refusal(kRefused,
                "--deny " + in_quotes(word) + " is not accepted (accepted: init, nvml, opencl)");
}

bool matches(const std::string& pattern, const std::string& text) {
  return fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
}

}  // namespace

std::set<Asked> denied_words(const std::vector<std::string>& lists) {
  std::set<Asked> result;
  for (const std::string& list : lists) {
    std::string_view rest = list;
    for (bool last = false; !last;) result.insert(asked_of(take_entry(rest, last)));
  }
  if (result.empty()) result.insert(Asked::kCuda);
  return result;
}

bool is_allowed(const std::vector<std::string>& patterns, const std::string& command) {
  std::vector<std::string> texts = {command};
  for (std::string_view rest = command; !rest.empty();) {
    const std::string_view word = head(rest, rest.find(' '));
    texts.emplace_back(word);
    texts.emplace_back(base_name(word));
    rest = tail(rest, word.size() + 1);
  }
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return std::any_of(texts.begin(), texts.end(),
                       [&](const std::string& text) { return matches(pattern, text); });
  });
}

std::vector<size_t> forbidden_processes(const Verdict& verdict, const Toucher& toucher) {
  std::vector<size_t> result;
  if (!verdict.deny.contains(toucher.asked)) return result;
  std::copy_if(toucher.processes.begin(), toucher.processes.end(), std::back_inserter(result),
               [&](size_t number) {
                 return !is_allowed(verdict.allow, verdict.findings.processes[number].command);
               });
  return result;
}

bool fails(const Verdict& verdict, const TreeTruth::Unguarded& process) {
  if (process.only_nvml && !verdict.deny.contains(Asked::kNvml)) return false;
  return process.has_driver && !is_allowed(verdict.allow, process.command);
}

void decide(Verdict& verdict) {
  verdict.fails.clear();
  for (const Toucher& toucher : verdict.findings.touchers) {
    verdict.fails.push_back(!forbidden_processes(verdict, toucher).empty());
  }
  const auto& unguarded = verdict.tree.unguarded;
  verdict.touched =
      std::find(verdict.fails.begin(), verdict.fails.end(), true) != verdict.fails.end() ||
      std::any_of(unguarded.begin(), unguarded.end(),
                  [&](const auto& process) { return fails(verdict, process); });
  TreeTruth& tree = verdict.tree;
  if (!tree.unguarded.empty()) {
    tree.value = TreeTruth::Value::kUnguarded;
  } else if (tree.traced && tree.doubts.empty()) {
    tree.value = TreeTruth::Value::kAllGuarded;
  }
}

}  // namespace cudaguard::launcher

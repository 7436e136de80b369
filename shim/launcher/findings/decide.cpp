// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/findings/decide.h"

#include <fnmatch.h>

#include <algorithm>
#include <string_view>

#include "policy/text.h"
#include "shim/launcher/message.h"

namespace cudaguard::launcher {

namespace {

constexpr int kTouched = 1;
constexpr int kProgramFailed = 2;

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

void decide(Verdict& verdict) {
  std::set<uint32_t> all;
  std::set<uint32_t> touched;
  std::set<uint32_t> allowed;
  const auto& processes = verdict.findings.processes;
  for (const ObservedProcess& process : processes) all.insert(process.pid);
  for (const TreeTruth::Seen& process : verdict.tree.seen) all.insert(process.pid);
  for (Toucher& toucher : verdict.findings.touchers) {
    toucher.forbidden.clear();
    if (!verdict.deny.contains(toucher.asked)) continue;
    for (const size_t number : toucher.processes) {
      const ObservedProcess& process = processes[number];
      const bool may = is_allowed(verdict.allow, process.command);
      (may ? allowed : touched).insert(process.pid);
      if (!may) toucher.forbidden.push_back(number);
    }
  }
  for (TreeTruth::Unguarded& process : verdict.tree.unguarded) {
    all.insert(process.pid);
    const bool denied = !process.only_nvml || verdict.deny.contains(Asked::kNvml);
    process.fails = process.has_driver && denied && !is_allowed(verdict.allow, process.command);
    if (process.fails) touched.insert(process.pid);
  }
  for (const uint32_t pid : touched) allowed.erase(pid);
  verdict.processes = all.size();
  verdict.touched = touched.size();
  verdict.allowed = allowed.size();
  verdict.exit_code = !touched.empty() ? kTouched : verdict.status == 0 ? 0 : kProgramFailed;
  TreeTruth& tree = verdict.tree;
  if (!tree.unguarded.empty()) {
    tree.value = TreeTruth::Value::kUnguarded;
  } else if (tree.traced && tree.doubts.empty()) {
    tree.value = TreeTruth::Value::kAllGuarded;
  }
}

}  // namespace cudaguard::launcher
